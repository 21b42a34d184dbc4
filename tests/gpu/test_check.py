"""The GPU script without a GPU: it runs on the processor, and its judgements can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Model
from eaglechat.engine.loading.placement import offload_devices
from eaglechat.gguf.preflight import check_pair
from tests.gpu import check
from tests.gpu.random_pair import SHAPES, Shape, pair_bytes, write_pair

SMALL = SHAPES["small"]


def test_the_script_runs_on_the_processor(
    tmp_path: Path, tiny_files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    target, draft = map(str, tiny_files)
    pairs = ["--target", target, "--draft", draft, "--shape", "small", "--folder", str(tmp_path)]
    size = ["--max-tokens", "24", "--repeat", "1", "--prompts", "2", "--ctx", "2048"]

    status = check.main(["--cpu", *pairs, *size])

    out = capsys.readouterr().out
    assert status == check.PASSED
    for pair in ("target", "random small q4_0"):
        results = [line.split("|")[2].strip() for line in out.splitlines() if f"| {pair}: " in line]
        assert results == ["skipped", "skipped", "passed", "passed"], pair
    assert out.count("| setting | draft length | shape |") == 2
    assert out.count("Python") >= 4


def test_without_a_gpu_it_says_so_and_ends_with_a_status_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    processor = [device for device in backend.devices() if not device.is_gpu]
    monkeypatch.setattr(backend, "devices", lambda: tuple(processor))
    assert check.main([]) == check.NO_GPU
    assert "no GPU: llama.cpp was built for " in capsys.readouterr().err


@pytest.mark.skipif(not offload_devices(backend.devices()), reason="no GPU on this machine")
def test_the_script_passes_on_the_gpu(tmp_path: Path) -> None:
    assert check.main(["--shape", "small", "--folder", str(tmp_path), "--prompts", "3"]) == 0


@pytest.mark.parametrize("quantization", ["q4_0", "q8_0"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_random_pair_is_one_that_llama_cpp_loads(
    tmp_path: Path, architecture: str, quantization: str
) -> None:
    shape = Shape(architecture, architecture, 128, 8, 4, 2, 32, 256, 1024, 512, 1e4)
    target, draft = write_pair(tmp_path, shape, quantization)

    headers = check_pair(target, draft)

    assert headers[0].quantization.lower() == quantization
    size = target.stat().st_size + draft.stat().st_size
    with Model(target) as model, Model(draft) as small:
        assert model.n_layers == 8
        assert small.target_layers == shape.target_layers == (2, 4, 5)
        assert model.tokenize("Hi there!\n", bos=False, special=False)
    assert size < 2 * pair_bytes(shape, quantization) + (1 << 17)
    first = target.stat().st_mtime_ns
    assert write_pair(tmp_path, shape, quantization)[0].stat().st_mtime_ns == first


def test_an_8b_pair_takes_what_an_8b_pair_takes() -> None:
    """Published Q4_0 files of Llama 3.1 8B have 4.7 GB; a draft for it about 0.2."""
    assert 4.5e9 < pair_bytes(SHAPES["llama-3.1-8b"], "q4_0") < 5.3e9


@pytest.mark.parametrize(
    ("log", "passed", "found"),
    [
        ("offloaded 33/33 layers to GPU\noffloaded 2/2 layers to GPU", True, "33 of 33, 2 of 2"),
        ("offloaded 20/33 layers to GPU\noffloaded 2/2 layers to GPU", False, "20 of 33, 2 of 2"),
        ("offloaded 33/33 layers to GPU", False, "33 of 33"),
        ("", False, "no layer"),
    ],
)
def test_a_layer_that_stayed_behind_is_found(log: str, passed: bool, found: str) -> None:
    judged = check.offload_check("layers", log)
    assert (judged.passed, judged.found) == (passed, found)


@pytest.mark.parametrize(
    ("here", "there", "passed"),
    [
        ((60, 130), (61, 128), True),
        ((60, 130), (25, 130), False),
        ((0, 200), (0, 190), True),
        ((30, 90), (0, 0), False),
    ],
)
def test_acceptance_that_differs_by_more_than_chance_fails(
    here: tuple[int, int], there: tuple[int, int], passed: bool
) -> None:
    same = {"5": (50, 200)}
    judged = check.acceptance_check({"3": here, **same}, {"3": there, **same}, "the processor")
    assert judged.passed is passed
    assert f"n = 3: {here[0]} of {here[1]} here, {there[0]} of {there[1]} there" in judged.found

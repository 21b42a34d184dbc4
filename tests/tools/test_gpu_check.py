"""The GPU check without a GPU: it runs on the CPU, and its judgements can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from eaglechat.engine.llama import backend
from eaglechat.engine.llama.placement import offload_devices
from tests.tools import gpu_check


def test_it_runs_on_the_cpu(
    tiny_files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    target, draft = map(str, tiny_files)
    size = ["--max-tokens", "24", "--prompts", "2", "--ctx", "2048"]

    status = gpu_check.main(["--cpu", "--target", target, "--draft", draft, *size])

    out = capsys.readouterr().out
    assert status == gpu_check.PASSED
    results = [line.split("|")[2].strip() for line in out.splitlines() if line.startswith("| ")]
    assert results == ["Result", "---", "skipped", "passed", "passed"]


def test_without_a_gpu_it_says_so_and_exits_with_a_status_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    processor = [device for device in backend.devices() if not device.is_gpu]
    monkeypatch.setattr(backend, "devices", lambda: tuple(processor))
    assert gpu_check.main([]) == gpu_check.NO_GPU
    assert "no GPU: llama.cpp was built for " in capsys.readouterr().err


@pytest.mark.skipif(not offload_devices(backend.devices()), reason="no GPU on this machine")
def test_it_passes_on_the_gpu() -> None:
    assert gpu_check.main(["--prompts", "3"]) == gpu_check.PASSED


@pytest.mark.parametrize(
    ("log", "passed", "found"),
    [
        ("offloaded 33/33 layers to GPU\noffloaded 2/2 layers to GPU", True, "33 of 33, 2 of 2"),
        ("offloaded 20/33 layers to GPU\noffloaded 2/2 layers to GPU", False, "20 of 33, 2 of 2"),
        ("offloaded 33/33 layers to GPU", False, "33 of 33"),
        ("", False, "no layer"),
    ],
)
def test_a_layer_that_stayed_on_the_cpu_fails(log: str, passed: bool, found: str) -> None:
    judged = gpu_check.offload_check(log)
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
    judged = gpu_check.acceptance_check(here, there, "the CPU")
    assert judged.passed is passed
    assert judged.found == f"{here[0]} of {here[1]} here, {there[0]} of {there[1]} there"

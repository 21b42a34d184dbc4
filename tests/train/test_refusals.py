"""Bad input is refused with the reason, before any time is spent."""

from __future__ import annotations

import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="training needs the extra train")

from eaglechat import cli
from eaglechat.train.settings import Budget, RunSettings
from tests import tiny
from tests.train.test_training import settings, trained

pytestmark = pytest.mark.torch

_Usage = namedtuple("_Usage", "total used free")


@pytest.fixture
def target(tiny_files: tuple[Path, Path]) -> Path:
    return tiny_files[0]


def refusal(capsys: pytest.CaptureFixture[str], target: Path, out: Path, *flags: Any) -> str:
    command = ["train", "--target", str(target), "-o", str(out), *map(str, flags)]
    assert cli.main(command) == 1
    assert not out.exists()
    return capsys.readouterr().err


def test_a_draft_that_no_run_here_wrote_is_not_replaced(
    tiny_files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "draft.gguf"
    shutil.copy(tiny_files[1], out)
    assert cli.main(["train", "--target", str(tiny_files[0]), "-o", str(out)]) == 1
    assert f"{out} exists, and no run in {tmp_path / 'draft.training'} wrote it" in (
        capsys.readouterr().err
    )
    assert out.read_bytes() == tiny_files[1].read_bytes()


def test_a_target_without_layer_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tiny.write_target(tmp_path / "phi.gguf", **{"general.architecture": "phi3"})

    said = refusal(capsys, other, tmp_path / "draft.gguf")

    assert "phi.gguf has the architecture phi3" in said
    assert "does not export layer inputs" in said


@pytest.mark.parametrize(
    ("flag", "value", "reason"),
    [
        (
            "--draft-vocab",
            1000,
            "1,000 tokens is larger than the vocabulary of target.gguf, which has "
            f"{len(tiny.TOKENS)}",
        ),
        ("--layers", "1,2,9", "offers 0 to 3; asked for 1, 2, 9"),
    ],
)
def test_what_does_not_fit_the_target(  # noqa: PLR0917
    flag: str, value: Any, reason: str, target: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert reason in refusal(capsys, target, tmp_path / "draft.gguf", flag, value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("\n", "chats.jsonl holds no chat with a reply to learn from"),
        ('{"t": [1, 2, 3, 49000, 5], "a": 2}\n', "line 1 of {} holds token 49000"),
        ('{"t": [1, 2, 3], "a": 9}\n', "line 1 of {}: its reply begins at 9 of 3 tokens"),
        ("hello\n", "line 1 of {} is no chat: "),
    ],
)
def test_chats_that_teach_nothing(
    content: str, reason: str, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chats = tmp_path / "chats.jsonl"
    chats.write_text(content)

    said = refusal(capsys, target, tmp_path / "draft.gguf", "--chats", chats)

    assert reason.format(chats) in said


@pytest.mark.parametrize(
    ("flag", "content"),
    [("--text", "the quick brown fox " * 400), ("--prompts", "a cat\nthe dog\n")],
)
def test_a_disk_too_small_for_the_features(  # noqa: PLR0917
    flag: str, content: str, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of a text it is known at once; while prompts are answered, the disk may fill up."""
    given = tmp_path / "given.txt"
    given.write_text(content)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(10**12, 10**12, 10**9))

    said = refusal(capsys, target, tmp_path / "draft.gguf", flag, given, "--longest", 64)

    assert "which has 0.0 GB to spare" in said
    assert "choose another place with --work" in said


@pytest.mark.parametrize(
    ("features", "changed", "said"),
    [
        (
            {"norm_before_fc": True},
            {b"norm_before_fc\x07\0\0\0\x01": b"norm_before_fc\x07\0\0\0\0"},
            "has no enc.output_norm.weight of the shape [96]",
        ),
        ({}, {b"attn_norm_2.weight": b"attn_norm_3.weight"}, "lacks blk.0.attn_norm_2.weight"),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
            {b"\x04\0\0\0\0\0\0\0yarn": b"\x04\0\0\0\0\0\0\0spun"},
            "its RoPE has eagle3.rope.scaling.type = spun",
        ),
        ({}, {b"rope.freq_base": b"rope.freq_vibe"}, "its RoPE has eagle3.rope.freq_vibe"),
        (
            {"sliding_window": 512, "use_sliding_window": True},
            {},
            "looks back 512 tokens (eaglechat.sliding_window), but samples are up to 1024",
        ),
    ],
    ids=["norm without its flag", "tensor it lacks", "kind of RoPE", "key of RoPE", "window"],
)
def test_a_draft_that_training_does_not_compute(  # noqa: PLR0917
    features: dict[str, Any], changed: dict[bytes, bytes], said: str, target: Path,
    publish: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    draft = publish(target, **features)
    for old, new in changed.items():
        assert draft.read_bytes().count(old) == 1
        draft.write_bytes(draft.read_bytes().replace(old, new))

    refused = refusal(capsys, target, tmp_path / "draft.gguf", "--init", draft)

    assert "training cannot start from published.gguf: " in refused
    assert said in refused


def test_prompts_that_cannot_be_read_are_refused_before_anything_is_written(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "draft.gguf"
    said = refusal(capsys, target, out, "--write", "5000", "--prompts", str(tmp_path / "no.txt"))

    assert "no.txt" in said
    assert not list(tmp_path.rglob("chats.jsonl"))


def test_a_run_goes_on_only_with_what_it_began_with(target: Path, tmp_path: Path) -> None:
    """Another recipe or other data is another run: named, not mixed."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {i} of a text {i * i} that goes on\n" for i in range(80)))
    first = settings(
        tmp_path, target, self_written_tokens=0, text=(text,), budget=Budget(tokens=2_000)
    )
    trained(first)

    from eaglechat.train.settings import TrainingError

    other = settings(
        tmp_path, target, self_written_tokens=0, text=(text,), draft_vocab=20,
        budget=Budget(tokens=2_000),
    )  # fmt: skip
    with pytest.raises(TrainingError, match="another draft vocabulary"):
        trained(other)


def test_another_target_shares_nothing_of_a_folder(target: Path, tmp_path: Path) -> None:
    """Not even one of the same name and size, whose features would fit."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {i} of a text {i * i} that goes on\n" for i in range(80)))

    def wanted(target: Path, **changes: Any) -> RunSettings:
        return settings(
            tmp_path, target, self_written_tokens=0, text=(text,), budget=Budget(tokens=2_000),
            **changes,
        )  # fmt: skip

    def features() -> dict[str, bytes]:
        work = tmp_path / "work"
        files = work.glob("features-*/*.f16")
        return {str(file.relative_to(work)): file.read_bytes() for file in files}

    trained(wanted(target))
    first = features()
    fine_tune = tiny.write_target(tmp_path / "fine-tune.gguf", looks_back=False)
    assert fine_tune.stat().st_size == target.stat().st_size

    from eaglechat.train.settings import TrainingError

    with pytest.raises(TrainingError, match="another target"):
        trained(wanted(fine_tune))
    trained(wanted(fine_tune, restart=True))
    both = features()
    assert len(both) == 2 * len(first)
    assert first.items() <= both.items()
    assert len(set(both.values())) > len(set(first.values()))

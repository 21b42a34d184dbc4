"""`eaglechat convert`: what it prints, its exit status, and what it leaves behind."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eaglechat.cli import main
from eaglechat.cli.hub import convert
from tests.convert.checkpoints import draft, write_target


@pytest.fixture
def files(tmp_path: Path) -> Path:
    draft(eagle_aux_hidden_state_layer_ids=[1, 5, 8]).save(tmp_path / "draft")
    write_target(tmp_path / "target.gguf")
    (tmp_path / "out").mkdir()
    return tmp_path


@pytest.fixture
def interruptible() -> Iterator[None]:
    """As a terminal starts it; a background job of a script has SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def run(files: Path, *options: str, checkpoint: str = "draft") -> int:
    target, out = files / "target.gguf", files / "out" / "draft.gguf"
    arguments = [str(files / checkpoint), "--target", str(target), "-o", str(out), *options]
    return main(["convert", *arguments])


def test_it_says_what_it_made_and_what_it_read_differently(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(files, "--type", "BF16") == 0
    printed = capsys.readouterr()
    assert "draft.gguf: bf16, 0.0" in printed.out
    assert "reads layers 2, 6, 9 of its target, drafts from 64 tokens" in printed.out
    assert "note: the layer ids 1, 5, 8 count outputs; written as inputs 2, 6, 9" in printed.err
    assert "converting: 100%" in printed.err
    assert "\r" not in printed.err


def test_a_terminal_gets_a_bar(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run(files) == 0
    drawn = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().err)
    assert re.search(r"converting ━+ 100% [\d.]+ kB of [\d.]+ kB", drawn)


def test_a_refusal_is_one_line_and_status_1(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(files, checkpoint="nowhere") == 1
    assert capsys.readouterr().err == (
        f"eaglechat: the checkpoint {files / 'nowhere'} does not exist\n"
    )


def test_an_unknown_type_is_wrong_usage(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(files, "--type", "q9") == 2
    assert "q9 is not a type; known are f32, f16, bf16, q8_0" in capsys.readouterr().err


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_leaves_nothing_behind(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_progress: object, _stage: str, done: int, total: int) -> None:
        if done > total / 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(convert.Progress, "show_bytes", interrupted)
    assert run(files) == 130
    assert "interrupted; nothing was written" in capsys.readouterr().err
    assert list((files / "out").iterdir()) == []


def test_what_the_disk_refuses_is_said_without_its_number(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = files / "out" / "draft.gguf.lock"
    lock.mkdir()
    assert run(files) == 1
    assert capsys.readouterr().err == f"eaglechat: {lock}: Is a directory\n"

"""`eaglechat run` with engines that die, are none, or run elsewhere; what is drawn meanwhile."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from eaglechat.cli import loading
from tests.cli.engines import engine_that, engine_that_dies_after
from tests.cli.redrawn import Terminal
from tests.cli.run.running import (
    PROMPT,
    Runner,
    command,
    process,
)
from tests.waiting import PATIENCE_S


def test_json_keeps_what_had_come_before_the_engine_died(
    tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    arguments = command(tiny_files, "--json", *engine_that_dies_after(3))
    with process(["-m", "eaglechat", *arguments], tmp_path) as running:
        out, err = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 1
    report = json.loads(out)
    assert report["finish_reason"] == "error"
    assert report["error"].startswith("the engine stopped by itself (signal 6, SIGABRT)")
    assert report["text"]
    assert report["speculation"]["rounds"] == 3
    assert report["tokens"] >= 3
    assert report["timings"]["tokens_per_second"] is None
    assert err.startswith(b"eaglechat: the engine stopped by itself")


def test_an_engine_that_dies_is_reported_with_the_end_of_its_log(
    tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    arguments = command(tiny_files, *engine_that_dies_after(3))
    with process(["-m", "eaglechat", *arguments], tmp_path) as running:
        out, err = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 1
    # What was written stays, on a line of its own.
    assert len(out) > 3
    assert out.endswith(b"\n")
    first, *log = err.decode().splitlines()
    assert first == (
        "eaglechat: the engine stopped by itself (signal 6, SIGABRT); its log ends with:"
    )
    assert "  GGML_ASSERT(n_outputs > 0) failed" in log
    assert "Traceback" not in err.decode()


def test_a_command_that_is_no_engine_says_what_it_was(eaglechat: Runner) -> None:
    # Not in this process: the fixture's engine is not what is asked for here.
    for engine, complaint in (
        ('["no-such-program", "x"]', "cannot start the engine with “no-such-program x”"),
        ('["sh", "-c", "echo no eaglechat here >&2; exit 3"]', "exit status 3"),
    ):
        ended = eaglechat("-o", f"engine.command={engine}", PROMPT, own_engine=False)
        assert (ended.status, complaint in ended.err) == (1, True), ended.err
    assert "  no eaglechat here" in ended.err


def test_an_engine_of_another_version_is_named(eaglechat: Runner) -> None:
    hello = json.dumps({"type": "hello", "protocol": 99, "eaglechat": "7.1", "llama_cpp": "b1"})
    says = json.dumps(["sh", "-c", f"echo '{hello[:-1]}, \"devices\": []}}'; sleep 60"])
    ended = eaglechat("-o", f"engine.command={says}", PROMPT, own_engine=False)

    assert (ended.status, ended.out) == (1, "")
    assert "the engine speaks version 99 of the protocol (eaglechat 7.1)" in ended.err


def test_only_the_engine_looks_at_the_files_of_an_engine_elsewhere(eaglechat: Runner) -> None:
    """Where its command starts it, there may be other files."""
    engine = engine_that("from eaglechat.engine.process import pair_worker")
    pair = ("--target", "/models/not-here.gguf")
    ended = eaglechat(*engine, PROMPT, pair=pair, own_engine=False)

    assert ended.complaint == "the target /models/not-here.gguf does not exist"


def test_where_no_process_can_be_started_that_is_said(
    eaglechat: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    ended = eaglechat(PROMPT, own_engine=False)

    assert ended.status == 1
    assert ended.complaint.startswith("cannot start the engine with “/no/such/python ")


def test_a_long_prompt_is_shown_as_it_is_read_until_the_reply_begins(
    eaglechat: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "PATIENCE_S", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    with redirect_stderr(terminal):
        ended = eaglechat("-o", "engine.n_batch=32", "the cat sat " * 30)

    assert ended.status == 0
    drawn = ["".join(frame) for frame in terminal.frames()]
    assert any("loading the target" in frame for frame in drawn)
    reading = [frame for frame in drawn if "reading the prompt" in frame]
    assert "of 332 tokens" in "".join(reading)
    assert "reading" not in drawn[-1]


def test_nothing_is_drawn_off_a_terminal(
    eaglechat: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "PATIENCE_S", 0.0)
    (summary,) = eaglechat("the cat sat " * 30).err.splitlines()
    assert summary.startswith("eaglechat: 40 tokens")

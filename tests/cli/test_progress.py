"""Bars on standard error: drawn where they can be redrawn, lines elsewhere."""

from __future__ import annotations

import io
import re
from itertools import count
from types import SimpleNamespace

import pytest

from eaglechat.cli import progress
from eaglechat.cli.progress import Progress
from tests.cli.redrawn import Terminal


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def test_a_bar_that_vanishes_is_one_for_all_tasks(terminal: Terminal) -> None:
    bars = Progress(terminal, vanish=True)
    bars.show("loading the target", 0.5, 1.0)
    bars.show("reading the prompt", 1, 2, "1 of 2 tokens")
    bars.close()
    bars.show("reading the prompt", 2, 2)
    *_, last, gone = terminal.frames()
    assert len(last) == 1
    assert last[0].startswith("reading the prompt ")
    assert last[0].rstrip().endswith("50% 1 of 2 tokens")
    assert "".join(gone) == ""


def test_a_bar_that_vanishes_is_not_drawn_off_a_terminal() -> None:
    stream = io.StringIO()
    bars = Progress(stream, vanish=True)
    bars.show("loading the target", 0.5, 1.0)
    bars.close()
    assert stream.getvalue() == ""


def test_off_a_terminal_each_tenth_is_said_once_with_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=count().__next__))
    stream = io.StringIO()
    bars = Progress(stream)
    for hundredth in range(101):
        bars.show("training", hundredth / 10, 10.0, "loss 1.0", timed=True)
    bars.close()
    lines = stream.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        f"training: {percent}%" for percent in range(0, 101, 10)
    ]
    left = ["1:30", "1:20", "1:10", "1:00", "0:50", "0:40", "0:30", "0:20", "0:10"]
    assert [line.split("  ")[1] for line in lines] == [
        "loss 1.0", *(f"{time} left, loss 1.0" for time in left), "loss 1.0"
    ]  # fmt: skip


def test_a_name_is_cut_only_where_there_is_no_room(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    bars = Progress(terminal)
    bars.show("re-encoding the target (only once)", 1, 2)
    bars.close()
    assert terminal.frames()[-1][0].startswith("re-encoding the target (only once) ")
    bars = Progress(terminal)
    bars.show("a-file-with-a-name-of-its-own.gguf", 1, 2, "x" * 40)
    bars.close()
    assert re.fullmatch(r"a-file-with-\S+…\s.* 50% x{40}", terminal.frames()[-1][0])


def test_a_name_is_text_and_no_markup(terminal: Terminal) -> None:
    bars = Progress(terminal)
    bars.show("[bold]m[/bold]", 1, None, "[red]")
    bars.close()
    assert "[bold]m[/bold]" in terminal.frames()[-1][0]
    assert terminal.frames()[-1][0].endswith("[red]")

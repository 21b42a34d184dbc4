"""A day in a real terminal: ask, copy a block, answer again, step back, edit, export, quit; find
the chat, attach a file, be killed in mid-reply, and find everything again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from eaglechat.hub.local import pairs
from tests.terminal.test_app import LOADING_TIMEOUT, open_terminal
from tests.terminal.tmux import REPLIED, Terminal

pytestmark = [
    pytest.mark.terminal,
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.skipif(
        pairs.inspect(pairs.builtin_pair()).problem is not None,
        reason="the demo extra is not installed",
    ),
]

ASKED = "Write a Python function that adds two numbers."
FLAGS = ("--pair", "smollm2-135m", "--temperature", "0", "--max-tokens", "60")


def leader(terminal: Terminal, key: str) -> None:
    terminal.keys("C-g")
    terminal.wait_for("Space searches")
    terminal.keys(key)


def answered(terminal: Terminal) -> None:
    """Wait for the note below the last reply."""
    terminal.says(REPLIED)
    terminal.wait_for("ready")


def test_the_way_of_a_day(home: Path) -> None:
    folder = home / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("Rain fell on the old bridge.\n" * 3)
    where = {"width": 80, "height": 24, "folder": folder}
    morning(home, where)
    noon(home, where)
    evening(home, where)


def morning(home: Path, where: dict[str, Any]) -> None:
    """A chat is begun, worked on, exported and left."""
    with open_terminal(home, *FLAGS, **where) as terminal:
        terminal.wait_for("Ask something", LOADING_TIMEOUT)
        terminal.type(ASKED)
        terminal.keys("Enter")
        answered(terminal)

        leader(terminal, "j")
        terminal.says(r"Copied \d+ lines? of python")
        assert terminal.copied().startswith("def ")

        leader(terminal, "r")
        terminal.wait_for("◂ 2/2 ▸")
        answered(terminal)
        leader(terminal, "[")
        terminal.wait_for("◂ 1/2 ▸")

        terminal.type("half a thought")
        leader(terminal, "e")
        terminal.wait_for("Editing:")
        terminal.type(" Thanks.")
        terminal.keys("Enter")
        terminal.wait_for(r"> ◂ 2/2 ▸")
        answered(terminal)
        terminal.wait_for("half a thought")

        leader(terminal, "w")
        terminal.wait_for("Export the chat")
        terminal.keys("Enter")
        terminal.says("Exported to ")
        (exported,) = where["folder"].glob("*.md")
        assert "Thanks." in exported.read_text()
        terminal.keys("C-q")
        terminal.wait_for("exit status 0")


def noon(home: Path, where: dict[str, Any]) -> None:
    """It is found again and goes on with a file, until the program is killed."""
    with open_terminal(home, **where) as terminal:
        terminal.wait_for("● smollm2-135m")
        terminal.keys("C-t")
        terminal.wait_for("1 chat|type|find")
        terminal.type("adds two numb")
        terminal.says("Write a Python function that adds")
        terminal.keys("Enter")
        terminal.wait_for("half a thought", LOADING_TIMEOUT)
        terminal.wait_for("ready", LOADING_TIMEOUT)

        terminal.keys(*["BSpace"] * len("half a thought"))
        terminal.type("What fell? @not")
        terminal.wait_for("notes.txt")
        terminal.keys("Tab")
        terminal.wait_for(r"\[notes.txt: ")
        terminal.keys("Enter")
        terminal.wait_for("writing")
        terminal.wait_for(r"\d tok/s")
        terminal.kill()


def evening(home: Path, where: dict[str, Any]) -> None:
    """What was asked is there."""
    with open_terminal(home, **where) as terminal:
        terminal.wait_for("● smollm2-135m")
        terminal.keys("C-t")
        terminal.wait_for("Write a Python")
        terminal.keys("Enter")
        terminal.wait_for("notes.txt", LOADING_TIMEOUT)
        terminal.wait_for("ready", LOADING_TIMEOUT)
        terminal.keys("C-q")
        terminal.wait_for("exit status 0")

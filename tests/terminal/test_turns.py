"""Half a day in a real terminal: answer again, step back, edit, copy a block, kill, reopen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eaglechat.hub.local import pairs
from tests.terminal.test_app import LOADING_TIMEOUT, open_terminal
from tests.terminal.tmux import Terminal

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
    terminal.wait_for("esc")
    terminal.keys(key)


def answered(terminal: Terminal) -> None:
    """Wait for the note below the last reply."""
    terminal.wait_for(r"\d+ tokens?, [\d.]+ tok/s")
    terminal.wait_for("ready")


def test_turns_are_worked_on_and_come_back(tmp_path: Path) -> None:
    with open_terminal(tmp_path, *FLAGS, width=80, height=24) as terminal:
        terminal.wait_for("Ask something", LOADING_TIMEOUT)
        terminal.type(ASKED)
        terminal.keys("Enter")
        answered(terminal)

        leader(terminal, "j")
        terminal.says(r"Copied python, \d+ lines?: def ")
        assert terminal.copied().startswith("def ")

        leader(terminal, "g")
        terminal.wait_for("◂ 2/2 ▸")
        answered(terminal)
        leader(terminal, "[")
        terminal.wait_for("◂ 1/2 ▸")

        terminal.type("half a thought")
        leader(terminal, "u")
        terminal.wait_for("Another wording")
        terminal.type(" Thanks.")
        terminal.keys("Enter")
        terminal.wait_for(r"> ◂ 2/2 ▸")
        answered(terminal)
        terminal.wait_for("half a thought")

        terminal.kill()
    with open_terminal(tmp_path, *FLAGS, width=80, height=24) as terminal:
        terminal.wait_for("Ask something", LOADING_TIMEOUT)
        terminal.keys("C-t")
        terminal.wait_for("Thanks")
        terminal.keys("Enter")
        terminal.wait_for(r"> ◂ 2/2 ▸")
        terminal.wait_for("half a thought")
        leader(terminal, "[")
        terminal.wait_for(r"> ◂ 1/2 ▸")

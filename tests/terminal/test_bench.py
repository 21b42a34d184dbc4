"""Compare with the real built-in pair, in a real terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eaglechat.chat.comparing import FIRST_LOOK
from tests.terminal.test_app import LOADING_TIMEOUT, open_terminal, pytestmark
from tests.terminal.tmux import REPLIED

__all__ = ["pytestmark"]
TIMEOUT = 600.0


@pytest.mark.slow
def test_other_prompts_are_measured_and_what_is_fastest_is_kept(home: Path) -> None:
    arguments = ("--pair", "smollm2-135m", "--temperature", "0", "--max-tokens", "40")
    with open_terminal(home, *arguments, width=120, height=36) as terminal:
        terminal.wait_for("Loaded in", LOADING_TIMEOUT)
        terminal.type("Name a colour.")
        terminal.keys("C-g", "c")
        terminal.wait_for(r"Up to \d+ minutes, until it can tell")
        terminal.resize(80, 24)
        # Heats enough for a verdict; a whole pass over the prompts takes three times as long.
        heats = rf"heat ({FIRST_LOOK + 1}|\d\d)"
        terminal.wait_for(f"{heats}|as plain|an't tell:|eaning ", TIMEOUT)
        if "measuring" in terminal.screen():
            terminal.keys("Escape")
        terminal.wait_for("as plain|an't tell:|eaning ", TIMEOUT)
        terminal.keys("Enter")
        terminal.says("starts with n_draft_max")
        (kept,) = json.loads((home / "state" / "draft-lengths.json").read_text())
        assert kept["n_draft_max"] in (0, 3)
        (found,) = json.loads((home / "state" / "speeds.json").read_text())
        assert [gain["n_draft_max"] for gain in found["measured"]] == [3]
        # The prompt waited, and the pair still answers.
        assert "Name a colour." in terminal.screen()
        terminal.keys("Enter")
        terminal.says(REPLIED)
        terminal.keys("C-q")
        terminal.wait_for("exit status 0")


def test_a_comparison_stops_at_once_and_quits_at_once(home: Path) -> None:
    with open_terminal(home, "--pair", "smollm2-135m", width=80, height=24) as terminal:
        terminal.wait_for("Ask something", LOADING_TIMEOUT)
        terminal.wait_for("Loaded in", LOADING_TIMEOUT)
        terminal.keys("C-g", "c")
        terminal.wait_for(r"heat \d")
        terminal.keys("Escape")
        terminal.wait_for("topped")
        terminal.keys("Escape")
        terminal.wait_for("Ask something")
        terminal.keys("C-g", "c")
        terminal.wait_for(r"heat \d")
        terminal.keys("C-q")
        terminal.wait_for("exit status 0")

"""The bench screen with the real built-in pair, in a real terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.terminal.test_app import LOADING_TIMEOUT, open_terminal, pytestmark
from tests.terminal.tmux import REPLIED

__all__ = ["pytestmark"]
BENCH_TIMEOUT = 600.0


@pytest.mark.slow
def test_a_quick_bench_measures_the_pair_and_its_best_length_is_kept(home: Path) -> None:
    arguments = ("--pair", "smollm2-135m", "--temperature", "0", "--max-tokens", "8")
    with open_terminal(home, *arguments, width=120, height=36) as terminal:
        terminal.wait_for("Ask something", LOADING_TIMEOUT)
        terminal.type("Name a colour.")
        terminal.keys("C-g", "b")
        terminal.wait_for(r"Up to \d+ minutes: 56 replies")
        terminal.keys("Tab", "Enter")
        terminal.wait_for(r"Pass 1, reply [2-9] of 40: .* left", BENCH_TIMEOUT)
        terminal.resize(80, 24)
        screen = terminal.wait_for("orth it|No gain|an't tell:|eaning ", BENCH_TIMEOUT)
        speeds = dict(re.findall(r"^ +(plain|auto|\d) +(\d+\.\d) ", screen, re.MULTILINE))
        assert list(speeds) == ["plain", "1", "3", "5", "auto"]
        assert all(float(speed) > 1 for speed in speeds.values())

        if re.search(r"Use \d|Let auto choose|Chat plainly", screen):
            terminal.keys("Enter")
            terminal.says("starts with n_draft_max")
            (kept,) = json.loads((home / "state" / "draft-lengths.json").read_text())
            assert str(kept["n_draft_max"]) in {"0", *speeds} - {"plain"}
        else:
            terminal.keys("Escape")
        (found,) = json.loads((home / "state" / "speeds.json").read_text())
        assert {str(gain["n_draft_max"]) for gain in found["measured"]} == {*speeds} - {"plain"}
        # The prompt waited, and the pair still answers.
        assert "Name a colour." in terminal.screen()
        terminal.keys("Enter")
        terminal.says(REPLIED)
        terminal.keys("C-q")
        terminal.wait_for("exit status 0")


def test_a_bench_stops_at_once_and_quits_at_once(home: Path) -> None:
    with open_terminal(home, "--pair", "smollm2-135m", width=80, height=24) as terminal:
        terminal.wait_for("Ask something", LOADING_TIMEOUT)
        terminal.keys("C-g", "b")
        terminal.wait_for("replies of at most")
        terminal.keys("C-g", "b")
        terminal.wait_for("Pass 1, reply 1 of 56")
        terminal.keys("Escape")
        terminal.wait_for("Stopped")
        terminal.keys("Escape")
        terminal.wait_for("Ask something")
        terminal.keys("C-g", "b")
        terminal.wait_for("replies of at most")
        terminal.keys("C-g", "b")
        terminal.wait_for("Pass 1, reply 1 of 56")
        terminal.keys("C-q")
        terminal.wait_for("exit status 0")

"""What Textual's driver does in a real terminal, as far as the app had to mend it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.terminal.tmux import Terminal

SCRIPT = """
import os, signal, threading
from textual.app import App
import eaglechat.tui.textual_fixes

class Continued(App):
    def on_ready(self):
        os.kill(os.getpid(), signal.SIGCONT)
        self.exit([thread.name for thread in threading.enumerate()].count("textual-input"))

print("threads that read keys:", Continued().run())
"""


@pytest.mark.terminal
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_an_app_that_was_not_suspended_reads_its_keys_once_after_it_is_continued() -> None:
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    with Terminal([sys.executable, "-c", SCRIPT], width=80, height=24, env=env) as terminal:
        terminal.wait_for("threads that read keys: 1")

"""The app with the real built-in pair, driven in a real terminal as its user would."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from eaglechat.chat.store import ChatStore
from eaglechat.chat.writing.question import text_of
from eaglechat.hub.local import pairs
from tests.terminal.tmux import Terminal
from tests.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.terminal,
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.skipif(
        pairs.inspect(pairs.builtin_pair()).problem is not None,
        reason="the demo extra is not installed",
    ),
]

LONG_PROMPT = "Tell me a very long story about a fox who wanted to fly."
LOADING_TIMEOUT = 180.0


def open_terminal(
    home: Path, *arguments: str, width: int, height: int, folder: Path | None = None
) -> Terminal:
    # On a processor the automatic length seldom drafts this pair. llama.cpp's threads spin: one is
    # the fastest beside other tests.
    flags = ["--n-draft-max", "3", "--threads", "1", *arguments]
    command = [sys.executable, "-m", "eaglechat", *flags]
    env = {
        "EAGLECHAT_HOME": str(home),
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "HF_HUB_OFFLINE": "1",
    }
    return Terminal(command, width=width, height=height, env=env, folder=folder)


@pytest.fixture
def wide(home: Path) -> Iterator[Terminal]:
    with open_terminal(home, "--temperature", "0", width=200, height=50) as terminal:
        yield terminal


def test_a_first_chat_from_the_menu_to_quitting(wide: Terminal) -> None:
    wide.wait_for(r"● smollm2-135m\s+110\.6 MB\s.*\sEAGLE-3")
    wide.keys("Enter")
    wide.wait_for("Ask something", LOADING_TIMEOUT)

    wide.type(LONG_PROMPT)
    wide.keys("Enter")
    wide.wait_for(r"1st \d+%  2nd \d+%  3rd \d+%")
    # A few of its rounds are plain.
    wide.wait_for(r"plain \w+ ±\d|same as plain|can't tell yet: \d|repeats itself")
    assert re.search(r"length +auto 0 1 2 \[3\] 4", wide.screen())

    for _ in range(2):
        wide.keys("F8")
    wide.wait_for(r"length +auto 0 1 2 3 4 \[5\]")
    wide.wait_for(r"3rd \d+%  4th \d+%")

    wide.keys("Escape")
    wide.wait_for("stopped")
    wide.type("Say it in one word.")
    wide.keys("Enter")
    wide.wait_for(r"(?s)> Say it in one word\..*• .* \d+ tokens, [\d.]+ tok/s")
    # The second turn finds the first in the KV cache.
    wide.keys("C-g", "q")
    wide.wait_for(r"prompt +\d+ tokens read, [1-9]\d+ cached")
    wide.keys("Escape")
    # With what follows at once, Escape is a key of its own.
    wide.wait_for(lambda screen: "tokens read" not in screen)

    # Quitting in mid-reply, of a chat in which nothing asks for a short one.
    wide.keys("C-n")
    wide.wait_for(lambda screen: "in one word" not in screen)
    wide.type(LONG_PROMPT)
    wide.keys("Enter")
    wide.wait_for(r"writing")
    wide.keys("C-q")
    wide.wait_for(r"exit status 0")


def test_quitting_in_the_middle_of_a_load(home: Path) -> None:
    with open_terminal(home, "--pair", "smollm2-135m", width=80, height=24) as terminal:
        terminal.wait_for("Loading smollm2-135m", LOADING_TIMEOUT)
        terminal.keys("C-q")
        terminal.wait_for(r"exit status 0")


@pytest.mark.parametrize("is_closed", [False, True], ids=["terminated", "window closed"])
def test_a_terminated_app_gives_the_terminal_back_and_keeps_what_was_typed(
    home: Path, *, is_closed: bool
) -> None:
    with open_terminal(home, "--pair", "smollm2-135m", width=80, height=24) as terminal:
        terminal.wait_for("Ask something", LOADING_TIMEOUT)
        terminal.type("a last word")
        terminal.wait_for("a last word")
        app_and_engine = terminal.shell().children(recursive=True)
        if is_closed:
            terminal.close()
        else:
            terminal.send(signal.SIGTERM)
            screen = terminal.wait_for(f"exit status {128 + signal.SIGTERM}")
            assert "a last word" not in screen
        _, left = psutil.wait_procs(app_and_engine, PATIENCE_S)
        assert len(app_and_engine) >= 2
        assert left == []
    (file,) = home.rglob("chats.sqlite3")
    (chat,) = ChatStore(file).saved()
    assert text_of(chat.unsent) == "a last word"

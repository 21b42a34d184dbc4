"""A real terminal for end-to-end tests: tmux with a server of its own, typed in like a user."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from tests.waiting import PATIENCE_S, until

REPLIED = r"token limit reached|\d+ tokens?, [\d.]+ tok/s"
"""The line below a reply, or the part of it that no panel beside it can cut in two."""


class Terminal:
    """A tmux session of a given size running one command; close it to kill everything in it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        width: int,
        height: int,
        env: Mapping[str, str],
        folder: Path | None = None,
    ) -> None:
        """The command runs in `folder`, or where the tests do."""
        self._socket = f"eaglechat-{uuid.uuid4().hex[:8]}"
        assignments = [f"{name}={value}" for name, value in env.items()]
        # A test runner's COLUMNS and LINES would lie about this terminal's size.
        environment = ["env", "-u", "COLUMNS", "-u", "LINES", *assignments]
        # The shell stays after the command, so that its exit status and last words can be read.
        line = f"{shlex.join([*environment, *command])}; echo exit status $?; exec cat"
        size = ("-x", str(width), "-y", str(height))
        self._tmux("new-session", "-d", *size, "-c", str(folder or Path.cwd()), line)
        self._tmux("set-option", "-s", "set-clipboard", "on")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the terminal away, as when its window is closed."""
        subprocess.run(["tmux", "-L", self._socket, "kill-server"], check=False)

    def keys(self, *names: str) -> None:
        """Press keys by tmux's names, such as Enter, Escape or C-q."""
        self._tmux("send-keys", *names)

    def type(self, text: str) -> None:
        """Type text as it is."""
        self._tmux("send-keys", "-l", text)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def kill(self) -> None:
        """SIGKILL the command, as the system does when memory runs out; its shell stays."""
        for process in self.shell().children():
            process.kill()

    def send(self, number: int) -> None:
        """Send the command a signal; its shell stays."""
        for process in self.shell().children():
            process.send_signal(number)

    def shell(self) -> psutil.Process:
        """The shell that runs the command."""
        return psutil.Process(int(self._tmux("display-message", "-p", "#{pane_pid}")))

    def screen(self, *, unwrapped: bool = False) -> str:
        """What the terminal shows now, or all of it as one line."""
        shown = self._tmux("capture-pane", "-p")
        return " ".join(shown.split()) if unwrapped else shown

    def wait_for(
        self,
        wanted: str | Callable[[str], bool],
        timeout: float = PATIENCE_S,
        every: float = 0.05,
        *,
        unwrapped: bool = False,
    ) -> str:
        """The screen, once it shows a match of the pattern (or satisfies the predicate)."""
        holds = wanted if callable(wanted) else re.compile(wanted).search
        held = False

        def matching() -> str | None:
            # Twice in a row: one look may find the top of a frame above the end of the last one.
            nonlocal held
            screen = self.screen(unwrapped=unwrapped)
            held, held_before = bool(holds(screen)), held
            return screen if held and held_before else None

        found = until(
            matching,
            lambda: f"{wanted}\nthe screen shows:\n{self.screen()}",
            timeout,
            lambda: time.sleep(every),
        )
        assert found is not None
        return found

    def copied(self) -> str:
        """What the command has put on the clipboard of the terminal, by OSC 52."""
        return self._tmux("show-buffer")

    def says(self, wanted: str, timeout: float = PATIENCE_S, every: float = 0.05) -> str:
        """The screen as one line, once it shows a match: where a sentence wraps depends on how long
        its numbers are."""
        return self.wait_for(wanted, timeout, every, unwrapped=True)

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-L", self._socket, "-f", os.devnull, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

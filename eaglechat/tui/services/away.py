"""The terminal's title, and the bell or notice when a reply ends while the user is elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from eaglechat.settings import Settings


class Away:
    """Sets the title and sends notices. `write` writes to the terminal past Textual's screen,
    `is_watched` says whether the terminal has the focus."""

    def __init__(
        self,
        write: Callable[[str], None],
        is_watched: Callable[[], bool],
        settings: Callable[[], Settings],
        *,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.write, self._is_watched, self._settings = write, is_watched, settings
        self._environment, self._clock = environment, clock
        self._title = ""
        self._began: float | None = None

    def close(self) -> None:
        """Leave no title behind: a shell sets its own."""
        self.write("\x1b]2;\x07")

    def show(self, doing: str) -> None:
        """Set the title to what the app is doing."""
        title = _plain(f"{doing} · eaglechat" if doing else "eaglechat")
        if title != self._title:
            self._title = title
            self.write(f"\x1b]2;{title}\x07")

    def follow(self, doing: str | None, about: str) -> None:
        """Show the progress of a reply, None if none is being written; `about` names the chat.

        When a reply ends that took long enough, an absent user is told.
        """
        if doing is not None:
            self._began = self._clock() if self._began is None else self._began
            self.show(doing)
        elif self._began is not None:
            took, self._began = self._clock() - self._began, None
            self.show("done")
            if not self._is_watched() and took >= self._settings().interface.notify_after:
                self._notify(f"Reply finished: {about}")
        elif self._is_watched():
            self.show(about)

    def forget(self) -> None:
        """The chat was left: its reply is followed no longer."""
        self._began = None

    def _notify(self, text: str) -> None:
        how = self._settings().interface.notify
        if how == "bell":
            self.write("\x07")
        elif how == "desktop":
            self.write(self._notice(_plain(text)))

    def _notice(self, text: str) -> str:
        notice = f"\x1b]9;{text}\x07"
        if "TMUX" not in self._environment:
            return notice
        # tmux passes on what is wrapped like this, if allow-passthrough is on.
        return f"\x1bPtmux;{notice.replace(chr(27), chr(27) * 2)}\x1b\\"


def _plain(text: str) -> str:
    """A text without control characters, which would end the escape sequence around it."""
    return "".join(character for character in text if character.isprintable())

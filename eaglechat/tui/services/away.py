"""What a terminal shows and does while its user looks elsewhere: its title, a bell, a notice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from eaglechat.settings import Settings

_KEEP_TITLE, _OLD_TITLE = "\x1b[22;2t", "\x1b[23;2t"
_NOTICES_OF_URXVT = ("rxvt", "foot")


class Away:
    """Tells the terminal what goes on. `write` writes to it past the screen, `is_watched` says
    whether it has the focus."""

    def __init__(
        self,
        write: Callable[[str], None],
        is_watched: Callable[[], bool],
        settings: Callable[[], Settings],
        *,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._is_watched, self._settings = write, is_watched, settings
        self._environment, self._clock = environment, clock
        self._title = ""
        self._began: float | None = None

    def open(self) -> None:
        """Take the terminal's title over."""
        self._write(_KEEP_TITLE)
        self.show("")

    def close(self) -> None:
        """Give back the title that it had."""
        self._write(_OLD_TITLE)

    def show(self, doing: str) -> None:
        """Say in the title what is being done."""
        title = _plain(f"{doing} · eaglechat" if doing else "eaglechat")
        if title != self._title:
            self._title = title
            self._write(f"\x1b]2;{title}\x07")

    def follow(self, doing: str | None, about: str) -> None:
        """What is being written in the chat `about`, as of now; None for nothing. When it ends,
        the user is told, who may have gone to do something else meanwhile."""
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

    def _notify(self, text: str) -> None:
        how = self._settings().interface.notify
        if how == "bell":
            self._write("\x07")
        elif how == "desktop":
            self._write(self._notice(_plain(text)))

    def _notice(self, text: str) -> str:
        is_urxvt = self._environment.get("TERM", "").startswith(_NOTICES_OF_URXVT)
        notice = f"\x1b]777;notify;eaglechat;{text}\x07" if is_urxvt else f"\x1b]9;{text}\x07"
        if "TMUX" not in self._environment:
            return notice
        # tmux hands on what stands in this, where allow-passthrough is on.
        return f"\x1bPtmux;{notice.replace(chr(27), chr(27) * 2)}\x1b\\"


def _plain(text: str) -> str:
    """Without what would end the sequence it stands in."""
    return "".join(character for character in text if character.isprintable())

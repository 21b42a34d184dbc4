"""The desktop around the app: the terminal's title and bell, the clipboard, and the user's own
editor, which has the terminal to itself until it ends."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from eaglechat.settings.model import Settings

_PROGRAM_S = 2.0
_EDITORS = ("nano", "vim", "vi")
"""Of which the first that is there is used if none is set."""


class Away:
    """Sets the terminal's title, and rings or sends a notice when a reply ends while the user is
    elsewhere. `write` writes to the terminal past Textual's screen, `is_watched` says whether the
    terminal has the focus."""

    def __init__(
        self,
        write: Callable[[str], None],
        is_watched: Callable[[], bool],
        settings: Callable[[], Settings],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.write, self._is_watched, self._settings = write, is_watched, settings
        self._clock = clock
        self._title = ""
        self._began: float | None = None

    def close(self) -> None:
        """Leave no title behind: a shell sets its own."""
        self.write("\x1b]2;\x07")

    def show(self, doing: str) -> None:
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
            interface = self._settings().interface
            if self._is_watched() or took < interface.notify_after or interface.notify == "off":
                return
            notice = f"\x1b]9;{_plain(f'Reply finished: {about}')}\x07"
            if "TMUX" in os.environ:
                # tmux passes on what is wrapped like this, if allow-passthrough is on.
                notice = f"\x1bPtmux;{notice.replace(chr(27), chr(27) * 2)}\x1b\\"
            self.write("\x07" if interface.notify == "bell" else notice)
        elif self._is_watched():
            self.show(about)

    def forget(self) -> None:
        """The chat was left: its reply is followed no longer."""
        self._began = None


def _plain(text: str) -> str:
    """A text without control characters, which would end the escape sequence around it."""
    return "".join(character for character in text if character.isprintable())


def copy(app: App[Any], text: str, what: str) -> None:
    """Copy a text by all means, and notify the user whether it surely arrived; `what` names it."""
    text = text.encode("utf-8", "replace").decode()
    # By OSC 52, to which terminals do not answer, and which macOS' Terminal ignores. Not by the
    # app's own, which calls this.
    App.copy_to_clipboard(app, text)
    app.notify(f"Copied {what}{'' if put(text) else ' through the terminal'}.")


def put(text: str) -> bool:
    """Copy a text by the desktop's program; False if it has none, or it failed."""
    command = _program()
    if command is None:
        return False
    # clip.exe reads UTF-16 with a byte order mark.
    encoding = "utf-16" if command[0] == "clip.exe" else "utf-8"
    try:
        done = subprocess.run(
            command,
            input=text.encode(encoding, "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PROGRAM_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _program() -> Sequence[str] | None:
    """The command that copies its input on this desktop; None over SSH, or if there is none."""
    if "SSH_CONNECTION" in os.environ:
        return None
    candidates: list[tuple[str, ...]] = []
    if sys.platform == "darwin":
        candidates.append(("pbcopy",))
    if sys.platform == "win32" or "WSL_DISTRO_NAME" in os.environ:
        candidates.append(("clip.exe",))
    if "WAYLAND_DISPLAY" in os.environ:
        candidates.append(("wl-copy",))
    if "DISPLAY" in os.environ:
        candidates += [("xclip", "-selection", "clipboard"), ("xsel", "--clipboard", "--input")]
    return next((one for one in candidates if shutil.which(one[0])), None)


# The editor


def in_editor(app: App[Any], text: str, name: str) -> str | None:
    """The text after the user's editor has changed it, in a file of this name. If there is no
    editor, or it fails, the user is told why, and None returned."""
    try:
        command = editor_command()
        with tempfile.TemporaryDirectory(prefix="eaglechat-") as folder:
            file = Path(folder) / name
            file.write_text(text, encoding="utf-8", errors="replace")
            with app.suspend():
                # An exception raised in here would keep Textual from taking the terminal back.
                problem = _problem_of([*command, str(file)])
            if not problem:
                return file.read_text(encoding="utf-8").removesuffix("\n")
    except UnicodeDecodeError:
        problem = f"{command[0]} saved what is not text in UTF-8; nothing was changed."
    except SuspendNotSupported:
        problem = "There is no terminal here for an editor."
    except (ValueError, OSError) as error:
        problem = str(error)
    app.notify(problem, severity="warning")
    return None


def _problem_of(command: list[str]) -> str:
    """Run an editor until it ends; what went wrong, or nothing."""
    try:
        status = subprocess.run(command, check=False).returncode
    except OSError as error:
        return f"{command[0]} could not be used: {error.strerror or error}."
    return f"{command[0]} exited with status {status}; nothing was changed." if status else ""


def editor_command() -> list[str]:
    """The command of the user's editor. Raises ValueError, which says in a sentence why there is
    none."""
    given = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        command = shlex.split(given)
    except ValueError as error:
        raise ValueError(
            f"$VISUAL or $EDITOR is {given}, which cannot be read: {error}."
        ) from error
    if command:
        return command
    for name in _EDITORS:
        found = shutil.which(name)
        # On Windows one in the working directory comes first, which may be anybody's.
        if found is not None and Path(found).is_absolute():
            return [found]
    *others, last = _EDITORS
    raise ValueError(
        f"No editor is set, and {', '.join(others)} and {last} were not found. Set $VISUAL or "
        "$EDITOR to the command of your editor, such as EDITOR='code --wait', and start eaglechat "
        "again."
    )

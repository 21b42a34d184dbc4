"""Copying to the clipboard of the machine the user sits at.

Terminals are asked by OSC 52, to which they do not answer; macOS' Terminal ignores it. So a program
of the desktop is asked too, whose exit status says whether the text was copied.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from textual.app import App

_PROGRAM_S = 2.0


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


def copy(app: App[Any], text: str, what: str) -> None:
    """Copy a text by all means, and notify the user whether it surely arrived; `what` names it."""
    text = text.encode("utf-8", "replace").decode()
    # Not the app's own, which calls this.
    App.copy_to_clipboard(app, text)
    app.notify(f"Copied {what}{'' if put(text) else ' through the terminal'}.")

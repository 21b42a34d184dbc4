"""The user's own editor, which has the terminal to itself until it ends."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

_WITHOUT_A_SETTING = ("nano", "vim", "vi")
"""The editors of which the first that is there is used if none is set."""


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
    for name in _WITHOUT_A_SETTING:
        found = shutil.which(name)
        # On Windows one in the working directory comes first, which may be anybody's.
        if found is not None and Path(found).is_absolute():
            return [found]
    *others, last = _WITHOUT_A_SETTING
    raise ValueError(
        f"No editor is set, and {', '.join(others)} and {last} were not found. Set $VISUAL or "
        "$EDITOR to the command of your editor, such as EDITOR='code --wait', and start eaglechat "
        "again."
    )

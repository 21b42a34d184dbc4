"""The user's own editor, which has the terminal to itself until it ends."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

_WITHOUT_A_SETTING = ("nano", "vim", "vi")
"""The editors of which the first that is there is used if none is set."""


class EditorError(RuntimeError):
    """There is no editor, or it failed: a sentence that says why."""


def in_editor(app: App[Any], text: str, name: str) -> str | None:
    """The text after the user's editor has changed it, in a file of this name. If the editor fails,
    the user is told why, and None returned."""
    written, problem = None, ""
    try:
        command = editor_command()
        with app.suspend():
            # An exception raised in here would keep Textual from taking the terminal back.
            try:
                written = edited(command, text, name)
            except EditorError as error:
                problem = str(error)
    except EditorError as error:
        problem = str(error)
    except SuspendNotSupported:
        problem = "There is no terminal here for an editor."
    if problem:
        app.notify(problem, severity="warning")
    return written


def editor_command(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The command of the user's editor. Raises EditorError."""
    given = environment.get("VISUAL") or environment.get("EDITOR") or ""
    try:
        command = shlex.split(given)
    except ValueError as error:
        raise EditorError(
            f"$VISUAL or $EDITOR is {given}, which cannot be read: {error}."
        ) from error
    if command:
        return command
    for name in _WITHOUT_A_SETTING:
        found = shutil.which(name, path=environment.get("PATH"))
        # On Windows one in the working directory comes first, which may be anybody's.
        if found is not None and Path(found).is_absolute():
            return [found]
    *others, last = _WITHOUT_A_SETTING
    raise EditorError(
        f"No editor is set, and {', '.join(others)} and {last} were not found. Set $VISUAL or "
        "$EDITOR to the command of your editor, such as EDITOR='code --wait', and start eaglechat "
        "again."
    )


def edited(command: list[str], text: str, name: str) -> str:
    """The text as the editor saved it, in a file of this name. The editor has the terminal until it
    ends. Raises EditorError."""
    editor = command[0]
    with tempfile.TemporaryDirectory(prefix="eaglechat-") as folder:
        file = Path(folder) / name
        try:
            file.write_text(text, encoding="utf-8", errors="replace")
            status = subprocess.run([*command, str(file)], check=False).returncode
            if status != 0:
                raise EditorError(f"{editor} exited with status {status}; nothing was changed.")
            written = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            why = f"{editor} saved what is not text in UTF-8; nothing was changed."
            raise EditorError(why) from error
        except OSError as error:
            raise EditorError(f"{editor} could not be used: {error.strerror or error}.") from error
    return written.removesuffix("\n")

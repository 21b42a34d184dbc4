"""Editing a text in the user's own editor."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from enum import Enum, auto
from pathlib import Path

WITHOUT_A_SETTING = ("nano", "vim", "vi")
"""The editors of which the first that is there is used if none is set."""


class NotEdited(Enum):
    """Why a text was not edited."""

    NO_EDITOR = auto()
    """None is set, and none of `WITHOUT_A_SETTING` is there."""
    WRONG_COMMAND = auto()
    """What is set cannot be split into words."""
    UNUSABLE = auto()
    FAILED = auto()
    NOT_UTF8 = auto()
    """What it saved is not text in UTF-8."""


class EditorError(RuntimeError):
    """There is no editor, or it failed. `command` is what was set, or what was started; `cause`
    says why it cannot be read or used, in the words of `shlex` or the operating system."""

    def __init__(
        self, why: NotEdited, command: str = "", *, status: int = 0, cause: str = ""
    ) -> None:
        super().__init__(why.name, command)
        self.why, self.command, self.status, self.cause = why, command, status, cause


def editor_command(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The command of the user's editor. Raises EditorError."""
    given = environment.get("VISUAL") or environment.get("EDITOR") or ""
    try:
        command = shlex.split(given)
    except ValueError as error:
        raise EditorError(NotEdited.WRONG_COMMAND, given, cause=str(error)) from error
    if command:
        return command
    for name in WITHOUT_A_SETTING:
        found = shutil.which(name, path=environment.get("PATH"))
        # On Windows one in the working directory comes first, which may be anybody's.
        if found is not None and Path(found).is_absolute():
            return [found]
    raise EditorError(NotEdited.NO_EDITOR)


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
                raise EditorError(NotEdited.FAILED, editor, status=status)
            written = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise EditorError(NotEdited.NOT_UTF8, editor) from error
        except OSError as error:
            cause = error.strerror or str(error)
            raise EditorError(NotEdited.UNUSABLE, editor, cause=cause) from error
    return written.removesuffix("\n")

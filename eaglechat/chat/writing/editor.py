"""Editing a text in the user's own editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path


class EditorError(RuntimeError):
    """There is no editor, or it failed; the text is a sentence for the user."""


def editor_command(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The command of the user's editor. Raises EditorError."""
    given = environment.get("VISUAL") or environment.get("EDITOR") or ""
    try:
        command = shlex.split(given)
    except ValueError as error:
        raise EditorError(f"$VISUAL or $EDITOR cannot be read: {error}.") from error
    if not command:
        raise EditorError("No editor is set: set $VISUAL or $EDITOR, such as EDITOR=nano.")
    return command


def edited(command: list[str], text: str) -> str:
    """The text as the editor saved it. The editor has the terminal until it ends. Raises
    EditorError."""
    with tempfile.TemporaryDirectory(prefix="eaglechat-") as folder:
        file = Path(folder) / "question.md"
        try:
            file.write_text(text, encoding="utf-8", errors="replace")
            status = subprocess.run([*command, str(file)], check=False).returncode
            if status != 0:
                raise EditorError(f"{command[0]} exited with status {status}; nothing was changed.")
            written = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise EditorError(f"{command[0]} could not be used: {why}.") from error
    return written.removesuffix("\n")

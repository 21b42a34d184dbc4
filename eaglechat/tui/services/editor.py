"""The user's own editor, which has the terminal to itself until it ends."""

from __future__ import annotations

from typing import Any

from textual.app import App, SuspendNotSupported

from eaglechat.chat.writing.editor import EditorError, edited, editor_command


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

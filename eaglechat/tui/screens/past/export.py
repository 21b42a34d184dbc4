"""Exporting a chat: the format and the folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, OptionList, Static

from eaglechat.chat.saved_chat import SavedChat
from eaglechat.tui.commands.registry import ENTER, TAB
from eaglechat.tui.export.chat import exported
from eaglechat.tui.export.formats import Format, free_file, render, write
from eaglechat.tui.screens.base import Update
from eaglechat.tui.screens.list_dialog import ListDialog
from eaglechat.tui.services import clipboard
from eaglechat.tui.widgets.panel.knob import Knob
from eaglechat.tui.widgets.readouts import MUTED
from eaglechat.wire.neutral import neutralise
from eaglechat.words import wording


class _Choice(NamedTuple):
    """A row of the list."""

    format: Format
    name: str
    explanation: str
    is_copied: bool = False


_CHOICES = (
    _Choice("markdown", "Markdown", "the questions and answers, to read"),
    _Choice("json", "JSON", "every branch with its rounds, for programs"),
    _Choice("html", "HTML", "token colours, light or dark like the system"),
    _Choice("markdown", "To the clipboard", "Markdown; no file is written", is_copied=True),
)


class ExportScreen(ListDialog[None]):
    """Exports a chat to a new file, or to the clipboard."""

    HEADING = "Export the chat"
    KEYS = f"{ENTER} writes the file, {TAB} moves, {{dialog.back}} back"
    PLACEHOLDER = ""

    def __init__(self, read: Callable[[], SavedChat], format: Format | None = None) -> None:
        """With a `format` the chat is exported at once, into the current directory."""
        super().__init__()
        self._read, self._format = read, format

    def content(self) -> ComposeResult:
        yield from super().content()
        yield Knob("with the reasoning", "switch", id="reasoning")
        yield Static("Folder", classes="muted")
        yield Input(_here(), id="folder", compact=True)

    def on_mount(self) -> None:
        self.rows.add_options(
            Content.assemble((f"{choice.name:<20}", "bold"), (choice.explanation, MUTED))
            for choice in _CHOICES
        )
        named = (place for place, one in enumerate(_CHOICES) if one.format == self._format)
        self.rows.highlighted = next(named, 0)
        if self._format is not None:
            self._write()

    @on(OptionList.OptionSelected)
    @on(Input.Submitted)
    def _write(self) -> None:
        choice = _CHOICES[self.rows.highlighted or 0]
        with_reasoning = self.query_one(Knob).chosen == "on"
        folder = self.query_one(Input).value
        self.in_background(lambda: self._export(choice, with_reasoning, folder))

    def _export(self, choice: _Choice, with_reasoning: bool, folder: str) -> Iterator[Update]:
        try:
            chat = exported(self._read(), with_reasoning=with_reasoning)
            if choice.is_copied:
                text = render(chat, choice.format).decode()
                yield partial(self._copy, neutralise(text))
                return
            file = free_file(Path(folder).expanduser(), chat.title, choice.format)
            write(file, chat, choice.format)
        except (OSError, RuntimeError, ValueError) as error:
            said = f"The chat was not exported: {wording.why(error)} ({folder})."
            yield partial(self._fail, f"{said} Try another folder, or the clipboard.")
        else:
            yield partial(self._say_written, file)

    def _copy(self, text: str) -> None:
        clipboard.copy(self.app, text, "the chat as Markdown")
        self.dismiss()

    def _say_written(self, file: Path) -> None:
        self.notify(f"Exported to {file}")
        self.dismiss()

    def _fail(self, sentence: str) -> None:
        self.notify(sentence, severity="error")
        self.query_one(Input).focus()


def _here() -> str:
    """The folder that eaglechat was started in; the home folder if that is gone."""
    try:
        return str(Path.cwd())
    except OSError:
        return "~"

"""Exporting a chat: the format and the folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, Static

from eaglechat.chat.saved_chat import SavedChat
from eaglechat.paths import write_atomically
from eaglechat.tui.commands.keys import ENTER, TAB
from eaglechat.tui.screens.dialogs import ListDialog
from eaglechat.tui.services import desktop
from eaglechat.tui.themes import MUTED
from eaglechat.tui.widgets.panel.knob import Knob
from eaglechat.words import wording
from eaglechat.words.export import Format, free_file, render
from eaglechat.words.neutral import neutralise

_CLIPBOARD = "To the clipboard"
_CHOICES: dict[str, tuple[Format, str]] = {
    "Markdown": ("markdown", "the questions and answers, to read"),
    "JSON": ("json", "every branch with its rounds, for programs"),
    "HTML": ("html", "token colours, light or dark like the system"),
    _CLIPBOARD: ("markdown", "Markdown; no file is written"),
}


class ExportScreen(ListDialog[None, str]):
    """Exports a chat to a new file, or to the clipboard."""

    HEADING = "Export the chat"
    KEYS = f"{ENTER} writes the file, {TAB} moves, {{dialog.back}} back"
    PLACEHOLDER = ""
    DEFAULT_CLASSES = "-short"

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
        named = (name for name, (format, _) in _CHOICES.items() if format == self._format)
        rows = (
            (name, Content.assemble((f"{name:<20}", "bold"), (explanation, MUTED)))
            for name, (_, explanation) in _CHOICES.items()
        )
        self.fill(rows, next(named, None))
        if self._format is not None:
            self._write()

    def choose(self, thing: str | None) -> None:
        self._write()

    @on(Input.Submitted, "#folder")
    def _write(self) -> None:
        chosen = self.highlighted or next(iter(_CHOICES))
        format = _CHOICES[chosen][0]
        with_reasoning = self.query_one(Knob).chosen == "on"
        folder = self.query_one(Input).value

        def export() -> str | Path:
            """Returns the text to copy, or the file."""
            chat = self._read()
            content = render(chat, format, with_reasoning=with_reasoning)
            if chosen == _CLIPBOARD:
                return neutralise(content.decode())
            try:
                place = Path(folder).expanduser()
            except RuntimeError as error:
                raise OSError(str(error)) from error
            file = free_file(place, chat.heading, format)
            write_atomically(file, content)
            return file

        def end(written: str | Path) -> None:
            if isinstance(written, Path):
                self.notify(f"Exported to {written}")
            else:
                desktop.copy(self.app, written, "the chat as Markdown")
            self.dismiss()

        def fail(error: Exception) -> None:
            said = f"The chat was not exported: {wording.why(error)} ({folder})."
            self.notify(f"{said} Try another folder, or the clipboard.", severity="error")
            self.query_one(Input).focus()

        self.in_background(export, end, fail)


def _here() -> str:
    """The folder that eaglechat was started in; the home folder if that is gone."""
    try:
        return str(Path.cwd())
    except OSError:
        return "~"

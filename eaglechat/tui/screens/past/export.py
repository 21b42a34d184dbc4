"""Where a chat is exported to, and as what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.color import Color, ColorParseError
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Checkbox, Input, OptionList, Static

from eaglechat.chat.export.formats import Format, free_file, write
from eaglechat.chat.export.looks import Look
from eaglechat.chat.export.reading import exported
from eaglechat.chat.history.reading import read_chat
from eaglechat.tui.commands.key_names import ENTER, TAB
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.screens.base import EagleModal, TooSmall
from eaglechat.tui.services.background import in_background
from eaglechat.tui.themes import TOKEN_KINDS
from eaglechat.tui.widgets.readouts import MUTED

_CHOICES: tuple[tuple[Format, bool, str, str], ...] = (
    ("markdown", False, "Markdown", "the questions and answers, to read"),
    ("json", False, "JSON", "every branch with its rounds, for programs"),
    ("html", False, "HTML", "the colours of the tokens, light or dark by itself"),
    ("html", True, "HTML in this theme", "the colours of the tokens as they are here"),
)


class ExportScreen(EagleModal[None]):
    """Writes a chat to a file beside others, never over one."""

    CSS_PATH = "export.tcss"

    class Written(Message):
        """The chat was written to a file, or why it was not."""

        def __init__(self, file: Path | None, problem: str = "") -> None:
            super().__init__()
            self.file, self.problem = file, problem

    def __init__(self, chat: Path, format: Format | None) -> None:
        """With a format it is written at once."""
        super().__init__()
        self._chat, self._format = chat, format

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="export") as dialog:
            dialog.border_title = "Export the chat"
            dialog.border_subtitle = with_keys(
                f"{ENTER} writes the file, {TAB} moves, {{dialog.back}} back"
            )
            rows = [
                Content.assemble((f"{name:<20}", "bold"), (about, MUTED))
                for _, _, name, about in _CHOICES
            ]
            yield OptionList(*rows, id="formats", compact=True)
            yield Checkbox("with the reasoning", id="reasoning", compact=True)
            yield Static("Folder", classes="muted")
            yield Input(str(Path.cwd()), id="folder", compact=True)
        yield TooSmall()

    def on_mount(self) -> None:
        formats = self.query_one("#formats", OptionList)
        places = [place for place, choice in enumerate(_CHOICES) if choice[0] == self._format]
        formats.highlighted = places[0] if places else 0
        formats.focus()
        if self._format is not None:
            self._write()

    @on(OptionList.OptionSelected)
    @on(Input.Submitted)
    def _write(self) -> None:
        format, in_theme, _, _ = _CHOICES[self.query_one("#formats", OptionList).highlighted or 0]
        with_reasoning = self.query_one(Checkbox).value
        folder = Path(self.query_one(Input).value).expanduser()
        looks = [self._look()] if in_theme else []
        in_background(self, lambda: self._written(format, looks, with_reasoning, folder))

    def _written(
        self, format: Format, looks: Sequence[Look], with_reasoning: bool, folder: Path
    ) -> Iterator[Message]:
        try:
            chat = exported(read_chat(self._chat), with_reasoning=with_reasoning)
            file = free_file(folder, chat.title, format)
            write(file, chat, format, looks)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            yield self.Written(None, f"The chat was not exported: {reason or error} ({folder}).")
        else:
            yield self.Written(file)

    def on_export_screen_written(self, message: Written) -> None:
        if message.file is None:
            self.notify(message.problem, severity="error", markup=False)
        else:
            self.notify(f"Exported to {message.file}", markup=False)
            self.dismiss()

    def _look(self) -> Look:
        """The theme in use, as a page has it."""
        variables = self.app.theme_variables
        return Look(
            background=_hex(variables, "background"),
            foreground=_hex(variables, "foreground"),
            surface=_hex(variables, "surface"),
            accent=_hex(variables, "primary"),
            tokens={
                kind: (_hex(variables, f"token-{kind}"), variables[f"token-{kind}-style"].split())
                for kind in TOKEN_KINDS
            },
        )


def _hex(variables: dict[str, str], name: str) -> str:
    """A colour as `#RRGGBB`; empty for one that only a terminal knows."""
    try:
        return Color.parse(variables[name]).hex6
    except ColorParseError:
        return ""

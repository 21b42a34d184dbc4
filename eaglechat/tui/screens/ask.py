"""A dialog that asks for a line of text."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from eaglechat.tui.commands.bindings import bindings_of
from eaglechat.tui.commands.key_names import ENTER
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.screens.base import EagleModal, TooSmall


class AskDialog(EagleModal[str | None]):
    """Dismisses with what was written, or None."""

    BINDINGS = bindings_of("dialog")

    def __init__(self, title: str, text: str, written: str) -> None:
        super().__init__()
        self._title, self._text, self._written = title, text, written

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = self._title
            dialog.border_subtitle = with_keys(f"{ENTER} takes it, {{dialog.back}} back")
            yield Input(self._written, compact=True)
            yield Static(self._text, classes="muted", markup=False)
        yield TooSmall()

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def _take(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

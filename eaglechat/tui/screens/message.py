"""A dialog that says something and waits for a key."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Static

from eaglechat.tui.screens.base import EagleModal, TooSmall


class MessageDialog(EagleModal[None]):
    """A title, a text, and a button that closes it."""

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    @property
    def says(self) -> object:
        return self._title, self._text

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = self._title
            with VerticalScroll(classes="dialog-text"):
                yield Static(self._text, markup=False)
            with Horizontal(classes="buttons"):
                yield Button("Close", id="close", variant="primary", compact=True)
        yield TooSmall()

    def on_mount(self) -> None:
        self.query_one("#close").focus()

    @on(Button.Pressed)
    def _close(self) -> None:
        self.dismiss(None)

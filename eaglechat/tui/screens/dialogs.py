"""Dialogs that any screen opens: a question before something is done, a message, a line of text."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Button, Input, Static

from eaglechat.tui.commands.bindings import moves
from eaglechat.tui.commands.registry import ENTER, TAB
from eaglechat.tui.screens.base import EagleModal, TooSmall
from eaglechat.tui.widgets.frame import Frame, clickable

OTHER_BUTTON = moves({"left,right": "other"})


class ConfirmDialog(EagleModal[bool]):
    """Asks before something is done that cannot be undone, or may not work. Dismisses with True if
    the user agreed; `agree` is the label of that button, and Cancel has the focus."""

    BINDINGS = OTHER_BUTTON

    def __init__(self, title: str, text: str, agree: str) -> None:
        super().__init__()
        self._title, self._text, self._agree = title, text, agree

    @property
    def says(self) -> object:
        return self._title, self._text, self._agree

    def compose(self) -> ComposeResult:
        with Frame(classes="dialog") as dialog:
            dialog.border_title = self._title
            dialog.border_subtitle = clickable(
                f"{TAB} moves, {ENTER} presses, {{dialog.back}} cancels"
            )
            with VerticalScroll(classes="dialog-text", can_focus=False):
                yield Static(self._text, markup=False)
            with Horizontal(classes="buttons"):
                yield Button(self._agree, id="agree", variant="error", compact=True)
                yield Button("Cancel", id="cancel", compact=True)
        yield TooSmall()

    def on_mount(self) -> None:
        self.query_one("#cancel").focus()

    def action_other(self) -> None:
        self.focus_next(Button)

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        self.dismiss(True if event.button.id == "agree" else None)


class MessageDialog(EagleModal[None]):
    """A title, a text, and a button that closes it."""

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    @property
    def says(self) -> object:
        return self._title, self._text

    def compose(self) -> ComposeResult:
        with Frame(classes="dialog") as dialog:
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
        self.dismiss()


class AskDialog(EagleModal[str]):
    """Asks for a line of text, which begins as `written`; dismisses with what it is then."""

    def __init__(self, title: str, text: str, written: str) -> None:
        super().__init__()
        self._title, self._text, self._written = title, text, written

    def compose(self) -> ComposeResult:
        with Frame(classes="dialog") as dialog:
            dialog.border_title = self._title
            dialog.border_subtitle = clickable(f"{ENTER} takes it, {{dialog.back}} back")
            yield Input(self._written, compact=True)
            yield Static(self._text, classes="muted", markup=False)
        yield TooSmall()

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def _take(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

"""What the screens share."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from textual.app import ComposeResult
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static

from eaglechat.tui.widgets.readouts import Line

if TYPE_CHECKING:
    from eaglechat.tui.app import EagleApp

Result = TypeVar("Result")


class TooSmall(Static):
    """Covers a screen in a terminal it does not fit into; what lies beneath stays as it was."""

    def __init__(self) -> None:
        super().__init__("Terminal\ntoo small\n\nneeds 44x12")


class TitleBar(Widget):
    """The top line: the program, what it is about, what it is doing."""

    def __init__(self, subject: str, state: str = "") -> None:
        super().__init__()
        self._subject, self._state = subject, state

    def compose(self) -> ComposeResult:
        yield Static("eaglechat", id="title-name")
        yield Line(self._subject, id="title-subject")
        yield Line(self._state, id="title-state")

    def show(self, *, subject: str | None = None, state: str | None = None) -> None:
        if subject is not None:
            self.query_one("#title-subject", Line).show(subject)
        if state is not None:
            self.query_one("#title-state", Line).show(state)


class EagleScreen(Screen[Result]):
    """A screen of this app."""

    @property
    def eagle(self) -> EagleApp:
        return cast("EagleApp", self.app)

    def go(self, message: Message) -> None:
        """Ask the app to go somewhere, by a message of `tui.navigation`."""
        self.app.post_message(message)

    def leave(self) -> None:
        """Stop what runs for this screen and keep what is its user's: it is about to go, and not
        by its own doing."""


class EagleModal(EagleScreen[Result], ModalScreen[Result]):
    """A dialog of this app."""

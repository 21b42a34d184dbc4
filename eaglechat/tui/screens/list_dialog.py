"""A dialog with a list: typing filters its rows, and a line says something about them."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.widgets import Static

from eaglechat.tui.screens.base import EagleModal, Result, TooSmall
from eaglechat.tui.widgets.filter import Filter, Rows
from eaglechat.tui.widgets.frame import Frame, clickable


class ListDialog(EagleModal[Result]):
    """A screen of its own fills the rows, and says what is chosen."""

    LIST_TITLE: ClassVar[str]
    KEYS: ClassVar[str] = "{list.choose} chooses, {dialog.back} back"
    """What can be done, on the border."""
    PLACEHOLDER: ClassVar[str] = "type to filter"
    SAYS: ClassVar[str] = ""
    """What the line says at first."""

    def compose(self) -> ComposeResult:
        with Frame(classes="dialog list-dialog") as dialog:
            dialog.border_title = self.LIST_TITLE
            dialog.border_subtitle = clickable(self.KEYS)
            rows = Rows(id="list")
            words = Filter(rows, id="filter")
            words.placeholder = self.PLACEHOLDER
            yield words
            yield Static(self.SAYS, id="said", markup=False)
            yield rows
        yield TooSmall()

    @property
    def words(self) -> Filter:
        return self.query_one(Filter)

    @property
    def rows(self) -> Rows:
        return self.query_one(Rows)

    def on_mount(self) -> None:
        self.words.focus()

    def offer(self, keys: str) -> None:
        """Name other keys on the border."""
        self.query_one(Frame).border_subtitle = clickable(keys)

    def say(self, text: str, *, bad: bool = False) -> None:
        said = self.query_one("#said", Static)
        said.update(text)
        said.set_class(bad, "problem")

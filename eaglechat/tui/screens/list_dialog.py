"""A dialog with a list, a line that says something about it, and mostly a filter above it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.widgets import Static

from eaglechat.tui.screens.base import EagleModal, Result
from eaglechat.tui.widgets.filter import Filter, Rows


class ListDialog(EagleModal[Result]):
    """A screen of its own fills the rows, and says what is chosen."""

    KEYS: ClassVar[str] = "{list.choose} chooses, {dialog.back} back"
    PLACEHOLDER: ClassVar[str] = "type to filter"
    """What stands in the empty filter; empty: there is no filter, and the list has the focus."""
    SAYS: ClassVar[str] = ""
    """What the line says at first."""

    def content(self) -> ComposeResult:
        rows = Rows(id="list")
        if self.PLACEHOLDER:
            words = Filter(rows, id="filter")
            words.placeholder = self.PLACEHOLDER
            yield words
        said = Static(self.SAYS, id="said", markup=False)
        said.display = bool(self.SAYS)
        yield said
        yield rows

    @property
    def words(self) -> Filter:
        return self.query_one(Filter)

    @property
    def rows(self) -> Rows:
        return self.query_one(Rows)

    def on_mount(self) -> None:
        (self.words if self.PLACEHOLDER else self.rows).focus()

    def say(self, text: str, *, bad: bool = False) -> None:
        said = self.query_one("#said", Static)
        said.update(text)
        said.display = bool(text)
        said.set_class(bad, "problem")

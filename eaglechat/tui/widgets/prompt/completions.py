"""The list of completions above the prompt."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from eaglechat.tui.commands.slash import Completion, Offer

_NAME_CELLS = 26


class Completions(OptionList):
    """The prompt keeps the focus and sets what is offered; `take` gets the row that is clicked."""

    DEFAULT_CSS = """
    Completions {
        height: auto;
        max-height: 9;
        margin: 0;
        padding: 0;
        border: none;
        background: $surface;
        scrollbar-size-vertical: 1;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    """

    can_focus = False

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, compact=True)
        self.display = False
        self.offer: Offer | None = None
        self.take: Callable[[Completion], None] = lambda _way: None

    def show(self, offer: Offer | None) -> None:
        """Show these completions; None hides the list."""
        if offer == self.offer:
            return
        self.offer = offer
        self.clear_options()
        if offer is not None:
            self.add_options(Option(_row(way), disabled=not way.text) for way in offer.ways)
            self.action_first()
        self.display = offer is not None

    @property
    def chosen(self) -> Completion | None:
        """The highlighted completion; None if there is none, or it has no text."""
        if self.offer is None or self.highlighted is None:
            return None
        way = self.offer.ways[self.highlighted]
        return way if way.text else None

    def move(self, by: int) -> None:
        if by < 0:
            self.action_cursor_up()
        else:
            self.action_cursor_down()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self.offer is not None:
            self.take(self.offer.ways[event.option_index])


def _row(way: Completion) -> Content:
    name = f"  {way.shown}"
    shown = f"{name}  " if len(name) > _NAME_CELLS else f"{name:<{_NAME_CELLS}}"
    style = "bold" if way.text else "$foreground-muted"
    return Content.assemble((shown, style), (way.help, "$foreground-muted"))

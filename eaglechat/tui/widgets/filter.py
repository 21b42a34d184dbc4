"""The line above a list: typing filters it, arrows move through it, Enter chooses."""

from __future__ import annotations

from textual.binding import Binding
from textual.widgets import Input, OptionList


class Filter(Input):
    """Keeps the focus while a list beside it is used; `Submitted` means the highlighted row."""

    BINDINGS = [
        Binding("enter", "submit", "Choose", id="filter.choose", tooltip="Choose the row"),
        Binding("up", "row('cursor_up')", "Up", id="filter.up", tooltip="Up a row", show=False),
        Binding(
            "down", "row('cursor_down')", "Down", id="filter.down", tooltip="Down a row", show=False
        ),
        Binding("pageup", "row('page_up')", "Page up", id="filter.page_up", show=False),
        Binding("pagedown", "row('page_down')", "Page down", id="filter.page_down", show=False),
        Binding("escape", "empty", "Clear the filter", id="filter.clear", show=False),
    ]

    def __init__(self, rows: OptionList, *, id: str | None = None) -> None:
        super().__init__(placeholder="type to filter", id=id, compact=True)
        self._rows = rows
        rows.can_focus = False

    @property
    def words(self) -> list[str]:
        """What every row left must contain."""
        return self.value.casefold().split()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # Where there is nothing to clear, Escape means what it means to the screen.
        return bool(self.value) if action == "empty" else True

    def action_row(self, action: str) -> None:
        getattr(self._rows, f"action_{action}")()

    def action_empty(self) -> None:
        self.value = ""

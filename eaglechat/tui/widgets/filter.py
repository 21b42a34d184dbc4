"""The line above a list: typing filters the list, the arrows move through it."""

from __future__ import annotations

from textual.widgets import Input, OptionList

from eaglechat.tui.commands.bindings import bindings_of


class Filter(Input):
    """Has the focus instead of its list; `Submitted` means that the highlighted row is chosen."""

    BINDINGS = bindings_of("list")

    def __init__(self, rows: OptionList, *, id: str | None = None) -> None:
        super().__init__(placeholder="type to filter", id=id, compact=True)
        self._rows = rows
        rows.can_focus = False

    @property
    def words(self) -> list[str]:
        """The words that every shown row must contain."""
        return self.value.casefold().split()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "row":
            return None if self._rows.option_count < 2 else True
        # Without text to clear, the key is the screen's.
        return bool(self.value) if action == "empty" else True

    def action_row(self, action: str) -> None:
        getattr(self._rows, f"action_{action}")()

    def action_empty(self) -> None:
        self.value = ""

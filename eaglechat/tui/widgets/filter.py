"""The line above a list: typing filters it, arrows move through it."""

from __future__ import annotations

from textual.widgets import Input, OptionList

from eaglechat.tui.commands.bindings import bindings_of


class Filter(Input):
    """Keeps the focus while a list beside it is used; `Submitted` means the highlighted row."""

    BINDINGS = bindings_of("list")

    def __init__(self, rows: OptionList, *, id: str | None = None) -> None:
        super().__init__(placeholder="type to filter", id=id, compact=True)
        self._rows = rows
        rows.can_focus = False

    @property
    def words(self) -> list[str]:
        """What every row left must contain."""
        return self.value.casefold().split()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "row":
            return None if self._rows.option_count < 2 else True
        # Where there is nothing to clear, its key means what it means to the screen.
        return bool(self.value) if action == "empty" else True

    def action_row(self, action: str) -> None:
        getattr(self._rows, f"action_{action}")()

    def action_empty(self) -> None:
        self.value = ""

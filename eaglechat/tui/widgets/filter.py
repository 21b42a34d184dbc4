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
        # Where there is nothing to clear, Escape means what it means to the screen.
        return bool(self.value) if action == "empty" else True

    def action_row(self, action: str) -> None:
        getattr(self._rows, f"action_{action}")()

    def action_empty(self) -> None:
        self.value = ""

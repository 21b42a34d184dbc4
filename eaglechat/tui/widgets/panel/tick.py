"""A checkbox that reads without colour: Textual's own shows its X in both states."""

from __future__ import annotations

from textual.geometry import Size
from textual.widgets import Checkbox


class Tick(Checkbox):
    """`[X] label` or `[ ] label` on one line."""

    FOCUS_ON_CLICK = False

    def __init__(
        self, label: str, value: bool, *, id: str | None = None, tooltip: str = ""
    ) -> None:
        super().__init__(label, value, id=id, compact=True, tooltip=tooltip or None)
        self._mark()

    def get_content_width(self, container: Size, viewport: Size) -> int:
        # Textual pads an empty label too, but leaves it no room.
        return super().get_content_width(container, viewport) + (0 if self.label else 2)

    def watch_value(self) -> None:
        super().watch_value()
        self._mark()

    def _mark(self) -> None:
        self.BUTTON_INNER = "X" if self.value else " "

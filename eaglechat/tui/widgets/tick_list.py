"""A list of boxes to tick that reads without colour: Textual's own shows its X in both states."""

from __future__ import annotations

from typing import TypeVar

from rich.segment import Segment
from textual.strip import Strip
from textual.widgets import SelectionList

Choice = TypeVar("Choice")


class TickList(SelectionList[Choice]):
    """`[X] label` or `[ ] label`, a row each."""

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        place = self.scroll_offset.y + y
        if place < self.option_count and self.get_option_at_index(place).value not in self.selected:
            left, (text, style, _), *rest = strip
            strip = Strip([left, Segment(" " * len(text), style), *rest])
        return strip

"""A text that is drawn for the width it has, and again whenever that changes."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.content import Content
from textual.widgets import Static


class Drawn(Static):
    """Empty until `show`."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._width = 0
        self._draw: Callable[[int], Content] = lambda _width: Content("")

    def show(self, draw: Callable[[int], Content]) -> None:
        """`draw` makes the text for a width in cells."""
        self._draw = draw
        self.update(draw(self._width))

    def on_resize(self, _event: events.Resize) -> None:
        if self.content_size.width != self._width:
            self._width = self.content_size.width
            self.update(self._draw(self._width))

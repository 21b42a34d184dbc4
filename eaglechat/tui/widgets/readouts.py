"""Text that changes many times a second, drawn anew only when it changed."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Static

from eaglechat.tui.texts import wording

Part = Content | str | tuple[str, str]
"""A piece of a text: plain, or with its style."""
MUTED = "$foreground-muted"


class Line(Static):
    """A text without markup."""

    def __init__(
        self, text: str = "", *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(text, id=id, classes=classes, markup=False)
        self._text = text

    def show(self, text: str) -> None:
        if text != self._text:
            self._text = text
            self.update(text)


class Reading(Widget):
    """A label and its value, at both ends of one line. Too long for it, the label gives way."""

    COMPONENT_CLASSES = {"reading--label", "reading--value"}

    def __init__(self, label: str, *, id: str, tooltip: str) -> None:
        super().__init__(id=id)
        self._label, self._value = label, "-"
        self.tooltip = tooltip

    def show(self, value: str) -> None:
        if value != self._value:
            self._value = value
            self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return 1

    def render(self) -> Content:
        width = self.content_size.width
        value = wording.fitting(self._value, width)
        label = wording.fitting(self._label, max(0, width - len(value) - 1))
        return Content.assemble(
            (label, self.get_visual_style("reading--label")),
            " " * (width - len(label) - len(value)),
            (value, self.get_visual_style("reading--value")),
        )

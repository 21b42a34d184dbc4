"""Text that is set many times a second and redrawn only if it changed."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Static

from eaglechat.words import wording

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
    """A label at the left end of a line and its value at the right. If the line is too short for
    both, the label is cut."""

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

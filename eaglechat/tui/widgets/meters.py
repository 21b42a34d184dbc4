"""A bar that is filled in part."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from eaglechat.words.bars import bar


class Bar(Widget):
    """A share of a whole as one line."""

    COMPONENT_CLASSES = {"bar--filled"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._share = 0.0

    def show(self, share: float) -> None:
        if self._share != share:
            self._share = share
            self.refresh()

    def render(self) -> Content:
        return Content.styled(
            bar(self._share, self.content_size.width), self.get_visual_style("bar--filled")
        )

"""Text that is set many times a second and redrawn only if it changed."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

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
            # A layout of the whole screen costs more than all that a frame draws.
            is_as_wide = self.size.height == 1 and cell_len(text) == cell_len(self._text)
            self._text = text
            self.update(text, layout=not is_as_wide)

"""Where all text of the app goes on its way to the terminal."""

from __future__ import annotations

import os
import re

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from eaglechat.words.neutral import UNSAFE

_UNSAFE = re.compile(rf"{UNSAFE}|[\n\t]")
_MARKS = "[\ufe0f\u20e3\U0001f3fb-\U0001f3ff]"
"""They make a character an emoji or a keycap, or give it a colour of skin."""
_MARKED = re.compile(f"(.)(?=(?:\u200d.)*{_MARKS})(?:\u200d.|{_MARKS})+")


class SafeLines(LineFilter):
    """Lets no control character of a drawn text reach the terminal, whoever wrote the text: a file
    name, a server, a model. What it removes is as wide as before, so that nothing moves.

    Within tmux and screen, emoji are drawn without marks: those programs count the cells of a
    marked one otherwise than Textual does, which would shift the rest of its row.
    """

    def __init__(self) -> None:
        super().__init__()
        terminal = os.environ.get("TERM", "")
        self._is_multiplexed = "TMUX" in os.environ or terminal.startswith(("screen", "tmux"))

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [self._safe(segment) for segment in segments]

    def _safe(self, segment: Segment) -> Segment:
        text, style, _ = segment
        if text.isascii() and text.isprintable():
            return segment
        text = _UNSAFE.sub(lambda unsafe: "\ufffd" * cell_len(unsafe[0]), text)
        if self._is_multiplexed:
            text = _MARKED.sub(lambda one: set_cell_size(one[1], cell_len(one[0])), text)
        return segment if text == segment.text else Segment(text, style)

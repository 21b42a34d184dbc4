"""Where all text of the app goes on its way to the terminal."""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from eaglechat.wire.neutral import UNSAFE

_UNSAFE = re.compile(rf"{UNSAFE}|[\n\t]")


class SafeLines(LineFilter):
    """Lets no control character of a drawn text reach the terminal, whoever wrote the text: a file
    name, a server, a model. What it removes is as wide as before, so that nothing moves."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(_UNSAFE.sub(_as_wide, text), style) if _UNSAFE.search(text) else segment
            for segment in segments
            for text, style, _ in [segment]
        ]


def _as_wide(unsafe: re.Match[str]) -> str:
    return "\ufffd" * cell_len(unsafe[0])

"""A terminal that keeps every frame that is drawn on it."""

from __future__ import annotations

import io
import re


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def frames(self) -> list[list[str]]:
        """The lines of each time it was drawn, without what moves the cursor and colours them."""
        drawn = re.split(r"\r(?:\x1b\[\d*[AK])+", self.getvalue())
        plain = [re.sub(r"\x1b\[\??[\d;]*[a-zA-Z]", "", frame) for frame in drawn]
        return [[line.rstrip() for line in frame.splitlines()] for frame in plain]

"""Text from models, servers and files, made safe for a terminal: it can neither move the cursor
nor change the title, the clipboard or the direction of a line."""

from __future__ import annotations

import re

# Escape sequences, other controls, characters that reorder a line, and lone surrogates, which
# cannot be written to a terminal at all.
UNSAFE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
_UNSAFE = re.compile(UNSAFE)


def neutralise(text: str) -> str:
    """Make text safe to draw: newlines and tabs stay, controls become visible symbols."""
    return _UNSAFE.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code == 0x0D:
        return ""
    if code in {0x2028, 0x2029}:
        return "\n"
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def neutralise_line(text: str) -> str:
    """The same for what stands in one row: line ends become visible too."""
    return neutralise(text).replace("\n", "\u240a")

"""What is wrong with a file, as one sentence that any terminal can show."""

from __future__ import annotations


class GGUFError(ValueError):
    """The file is not a GGUF this program can read; the text is one sentence that says why."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class GGUFTruncatedError(GGUFError):
    """The file, or the part of it that was given, ends too early."""


def printable(text: str) -> str:
    """Text out of a file, or its name, without what moves a cursor or cannot be encoded."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)

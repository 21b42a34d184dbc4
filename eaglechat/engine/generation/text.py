"""Turns the bytes of tokens into text that never has to be taken back."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """Text of a reply, token by token.

    Bytes of an incomplete character wait for the rest of it, and text that may be the beginning of
    a stop string waits until it is not. Bytes that are no UTF-8 become U+FFFD.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = tuple(text for text in stop if text)
        self._held = ""
        self.stopped = False
        """True once a stop string was seen; the text ends before it."""

    def push(self, piece: bytes) -> str:
        """The text that became certain with these bytes."""
        self._held += self._decoder.decode(piece)
        ends = [at for at in (self._held.find(text) for text in self._stop) if at >= 0]
        if ends:
            self.stopped = True
            certain, self._held = self._held[: min(ends)], ""
            return certain
        keep = self._possible_stop()
        certain = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        return certain

    def flush(self) -> str:
        """What was held back, when nothing follows."""
        if self.stopped:
            return ""
        rest, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return rest

    def _possible_stop(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        longest = max((len(text) for text in self._stop), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(text.startswith(self._held[-length:]) for text in self._stop):
                return length
        return 0

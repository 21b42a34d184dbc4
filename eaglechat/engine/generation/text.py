"""Turns the bytes of tokens into text that never has to be taken back from the screen."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from eaglechat.engine.templates.dialect import ANSWER_ONLY
from eaglechat.wire.part_stream import PartStream, Segment, joined
from eaglechat.wire.records import Part


class TextStream:
    """The text of a reply, token by token.

    Bytes of an incomplete character wait for the rest of it. Text that may begin a stop string
    waits until it is clear that it does not. Bytes that are not UTF-8 become U+FFFD.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = tuple(text for text in stop if text)
        self._held = ""
        self.stopped = False
        """True once a stop string was seen; the text ends before it."""

    def push(self, piece: bytes) -> str:
        """The text that is certain, now that these bytes have come."""
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
        """The text that was held back, at the end of the reply."""
        if self.stopped:
            return ""
        rest, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return rest

    def _possible_stop(self) -> int:
        """Length of the longest end of the held text that a stop string begins with."""
        longest = max((len(text) for text in self._stop), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(text.startswith(self._held[-length:]) for text in self._stop):
                return length
        return 0


class ReplyText:
    """The text of a reply, token by token, and the part of the reply that each belongs to.

    The text of a token belongs to one part. If a token ends one part and begins the next, the text
    of the next part comes with the token after it.
    """

    def __init__(self, parts: PartStream | None = None, stop: Sequence[str] = ()) -> None:
        """Without `parts` all of it is the answer."""
        self._stream = TextStream(stop)
        self._parts = parts or ANSWER_ONLY.begin("")
        self._is_plain = self._parts.is_plain
        self._waiting: list[Segment] = []

    @property
    def stopped(self) -> bool:
        """True once a stop string was seen; the text ends before it."""
        return self._stream.stopped

    @property
    def part(self) -> Part | None:
        """The part that the reply is in."""
        return self._parts.part

    def push(self, piece: bytes) -> tuple[str, Part | None]:
        """The text that is certain, now that a token's bytes have come, and the token's part: None
        for markers and headers."""
        if self._is_plain:
            return self._stream.push(piece), Part.ANSWER
        self.give(piece)
        if self._waiting:
            part, certain = self._waiting.pop(0)
            return certain, part
        swallowed = piece and not self._parts.holds
        return "", None if swallowed else self._parts.part

    def give(self, piece: bytes) -> None:
        """Continue as if a token with these bytes had been written. Its text, if any, comes with
        the next token."""
        text = self._stream.push(piece)
        self._waiting = joined([*self._waiting, *self._parts.push(text)])

    def flush(self) -> list[Segment]:
        """The text that was held back, at the end of the reply, by part."""
        rest = [*self._waiting, *self._parts.push(self._stream.flush()), *self._parts.flush()]
        self._waiting = []
        return joined(rest)

"""Reads values from the bytes of a GGUF header, a window at a time and never more than a limit.

A file may be cut short while it is read, or be made to break readers: whatever the bytes, reading
ends in a value or a GGUFError, after a bounded time and in bounded memory.
Source of the format: ggml/docs/gguf.md of llama.cpp.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

from eaglechat.gguf.errors import GGUFError, GGUFTruncatedError

MOST_HEADER_BYTES = 64 << 20
"""Four times the largest header of a model with 260,000 tokens."""

MOST_KEPT = 512
"""Longest array of numbers whose values are kept: one for each layer of the deepest model."""

_MOST_SKIPPED_TEXTS = 1 << 21
_WINDOW = 256 << 10

TEXT, ARRAY = 8, 9
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Array:
    """An array in the metadata; `values` is None where it is longer than anyone reads, or texts."""

    length: int
    values: tuple[Any, ...] | None
    is_text: bool


class Cursor:
    """Walks through a header. `name` and `size` (bytes of the whole file) are for the errors."""

    def __init__(self, file: BinaryIO, name: str, size: int) -> None:
        self._file = file
        self._name, self._size = name, size
        self._window = b""
        self._before = 0
        self._at = 0
        self._skipped_texts = 0

    @property
    def position(self) -> int:
        """Bytes from the beginning of the file."""
        return self._before + self._at

    def raw(self, count: int) -> bytes:
        at = self._step(count)
        return self._window[at : self._at]

    def scalar(self, code: str) -> Any:
        """A number, by its code in the struct module."""
        at = self._step(struct.calcsize(code))
        return struct.unpack_from("<" + code, self._window, at)[0]

    def text(self) -> str:
        return self.raw(self.scalar("Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        """A value of one of the format's types: an int, float, bool, str or Array."""
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            return self._array()
        return self.scalar(self._code(kind))

    def array_head(self) -> Array:
        """The length of an array whose values follow."""
        is_text = self.scalar("I") == TEXT
        return Array(self.scalar("Q"), None, is_text)

    def _array(self) -> Array:
        kind, length = self.scalar("I"), self.scalar("Q")
        if kind == TEXT:
            self._skip_all_texts(length)
            return Array(length, None, is_text=True)
        code = self._code(kind)
        if length > MOST_KEPT:
            self._skip(length * struct.calcsize(code))
            return Array(length, None, is_text=False)
        packed = self.raw(length * struct.calcsize(code))
        return Array(length, struct.unpack(f"<{length}{code}", packed), is_text=False)

    def _skip_all_texts(self, count: int) -> None:
        self._skipped_texts += count
        if self._skipped_texts > _MOST_SKIPPED_TEXTS:
            raise GGUFError(f"{self._name} claims a list of {count:,} texts, more than any model")
        while count:
            count -= self._skip_texts(count)

    def _skip_texts(self, count: int) -> int:
        """Go past up to `count` texts, as many as the window holds the lengths of."""
        # The hot loop of a header: a vocabulary is 50,000 to 260,000 of these, its merges more.
        window, at, unpack = self._window, self._at, _LENGTH.unpack_from
        skipped = 0
        try:
            for skipped in range(count):  # noqa: B007
                at += 8 + unpack(window, at)[0]
            skipped = count
        except (struct.error, OverflowError):
            pass
        self._skip(at - self._at)
        if skipped < count:
            self._fill(8)
        return skipped

    def _code(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise GGUFError(f"the header of {self._name} holds a value of the unknown type {kind}")
        return _SCALARS[kind]

    def _step(self, count: int) -> int:
        """Go past `count` bytes; returns where they begin in the window."""
        if self._at + count > len(self._window):
            self._fill(count)
        at = self._at
        self._at += count
        return at

    def _skip(self, count: int) -> None:
        self._at += count
        if self._at > len(self._window):
            self._check_limit(0)
            self._before, self._at, self._window = self.position, 0, b""
            self._file.seek(self._before)

    def _fill(self, count: int) -> None:
        """Move the window on, so that it begins here and holds at least `count` bytes."""
        self._check_limit(count)
        rest = self._window[self._at :]
        self._before, self._at = self.position, 0
        self._window = rest + self._file.read(max(count - len(rest), _WINDOW))
        if len(self._window) < count:
            raise GGUFTruncatedError(
                f"{self._name} is cut short inside its header ({self._size:,} bytes)"
            )

    def _check_limit(self, count: int) -> None:
        if self.position + count > MOST_HEADER_BYTES:
            raise GGUFError(
                f"{self._name} claims a header of more than {MOST_HEADER_BYTES >> 20} MiB, "
                "larger than that of any model"
            )

"""A file under way: its bytes in a `.part`, and in a map beside it how many each block has.

Data is written first and counted after, both straight to the system, so a process killed at any
time loses no more than what it had not written yet.
"""

from __future__ import annotations

import os
import struct
import threading
from pathlib import Path
from types import TracebackType

from eaglechat.paths import write_atomically

BLOCK = 32 << 20
"""Bytes that one request asks for: a second or so on a fast line, so that asking costs little."""
PART, MAP = ".part", ".part.map"


def arrived(part: Path, size: int) -> int:
    """How many bytes are here of a file of `size` bytes. Raises OSError."""
    return sum(_read_counts(part, size))


def map_of(part: Path) -> Path:
    return part.with_name(part.name.removesuffix(PART) + MAP)


class Part:
    """May be used from any thread while it is open. Raises OSError."""

    def __init__(self, path: Path, size: int) -> None:
        self.size = size
        self._counts = _read_counts(path, size)
        self._lock = threading.Lock()
        counts = map_of(path)
        if not counts.exists() or counts.read_bytes() != _packed(self._counts):
            write_atomically(counts, _packed(self._counts))
        path.touch()
        self._data = path.open("r+b", buffering=0)
        self._map = counts.open("r+b", buffering=0)
        if path.stat().st_size > size:
            self._data.truncate(size)

    def __enter__(self) -> Part:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._data.close()
        self._map.close()

    @property
    def done(self) -> int:
        """Bytes that are here."""
        return sum(self._counts)

    def missing(self) -> list[tuple[int, int]]:
        """Of each block that is not whole, where the rest begins and ends."""
        return [
            (block * BLOCK + count, min((block + 1) * BLOCK, self.size))
            for block, count in enumerate(self._counts)
            if block * BLOCK + count < min((block + 1) * BLOCK, self.size)
        ]

    def unbroken(self) -> int:
        """Bytes that are here from the beginning on, without a gap."""
        return next((start for start, _ in self.missing()), self.size)

    def read(self, start: int, count: int) -> bytes:
        with self._lock:
            self._data.seek(start)
            return self._data.read(count)

    def write(self, at: int, data: bytes) -> None:
        """Keep what is new of `data`, which begins at byte `at` of the file.

        What comes again is passed over: what is here stays as it is.
        """
        rest = memoryview(data)
        while rest:
            block, inside = divmod(at, BLOCK)
            piece = rest[: BLOCK - inside]
            with self._lock:
                self._append(block, piece[max(self._counts[block] - inside, 0) :], inside)
            at, rest = at + len(piece), rest[len(piece) :]

    def _append(self, block: int, new: memoryview, inside: int) -> None:
        count = self._counts[block]
        if not new:
            return
        if inside > count:
            raise ValueError(f"{inside - count} bytes before this piece are missing")
        self._data.seek(block * BLOCK + count)
        rest = new
        while rest:
            rest = rest[self._data.write(rest) :]
        self._counts[block] = count + len(new)
        self._map.seek(4 * block)
        self._map.write(struct.pack("<I", self._counts[block]))

    def sync(self) -> None:
        """Wait until the disk has it."""
        os.fsync(self._data.fileno())


def _packed(counts: list[int]) -> bytes:
    return struct.pack(f"<{len(counts)}I", *counts)


def _read_counts(part: Path, size: int) -> list[int]:
    """Bytes of each block; what the map says beyond the end of the part is not here."""
    n_blocks = -(-size // BLOCK)
    try:
        stored, length = map_of(part).read_bytes(), min(part.stat().st_size, size)
    except FileNotFoundError:
        return [0] * n_blocks
    if len(stored) != 4 * n_blocks:
        return [0] * n_blocks
    counts = struct.unpack(f"<{n_blocks}I", stored)
    return [min(count, BLOCK, max(length - block * BLOCK, 0)) for block, count in enumerate(counts)]

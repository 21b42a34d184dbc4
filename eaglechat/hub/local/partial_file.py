"""A file while it is being downloaded: its bytes in `<etag>.part`, and in `<etag>.part.map` the
number of bytes received of each block.

Bytes are written first and counted afterwards, both without buffering, so a process that is killed
at any moment loses at most the bytes that it had not counted yet: they are downloaded again.
"""

from __future__ import annotations

import os
import struct
import threading
from pathlib import Path
from types import TracebackType

from eaglechat.paths import write_atomically

BLOCK = 32 << 20
"""Bytes per block, which is what one request asks for: about a second on a fast connection, so
that the time for a request is small beside it."""
PARTIAL, COUNTS = ".part", ".part.map"


def counts_file(path: Path) -> Path:
    """The file with the bytes received of each block, for the partial file at `path`."""
    return path.with_name(path.name.removesuffix(PARTIAL) + COUNTS)


def bytes_received(path: Path, size: int) -> int:
    """How many of a file's `size` bytes the partial file at `path` has. Raises OSError."""
    return sum(_read_counts(path, size))


class PartialFile:
    """The partial file of a download of `size` bytes, open for writing.

    Its methods may be called from any thread and raise OSError.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.size = size
        self._counts = _read_counts(path, size)
        self._lock = threading.Lock()
        counts = counts_file(path)
        if not counts.exists() or counts.read_bytes() != _packed(self._counts):
            write_atomically(counts, _packed(self._counts))
        path.touch()
        self._data = path.open("r+b", buffering=0)
        self._counts_on_disk = counts.open("r+b", buffering=0)
        if path.stat().st_size > size:
            self._data.truncate(size)

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._data.close()
        self._counts_on_disk.close()

    @property
    def received(self) -> int:
        """Bytes received, in all blocks."""
        return sum(self._counts)

    @property
    def received_from_start(self) -> int:
        """Bytes received from the start of the file up to the first gap."""
        return next((start for start, _ in self.missing_ranges()), self.size)

    def missing_ranges(self) -> list[tuple[int, int]]:
        """For each incomplete block, the first missing byte and the end of the block."""
        ends = (min((block + 1) * BLOCK, self.size) for block in range(len(self._counts)))
        starts = (block * BLOCK + count for block, count in enumerate(self._counts))
        return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]

    def read(self, start: int, count: int) -> bytes:
        with self._lock:
            self._data.seek(start)
            return self._data.read(count)

    def write(self, start: int, data: bytes) -> None:
        """Write `data`, which begins at byte `start` of the file; skip bytes received before.

        Raises ValueError if bytes of the same block before `start` are still missing.
        """
        rest = memoryview(data)
        while rest:
            block, inside = divmod(start, BLOCK)
            piece = rest[: BLOCK - inside]
            with self._lock:
                self._append(block, piece[max(self._counts[block] - inside, 0) :], inside)
            start, rest = start + len(piece), rest[len(piece) :]

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
        self._counts_on_disk.seek(4 * block)
        self._counts_on_disk.write(struct.pack("<I", self._counts[block]))

    def sync(self) -> None:
        """Wait until the bytes are on the disk."""
        os.fsync(self._data.fileno())


def _packed(counts: list[int]) -> bytes:
    return struct.pack(f"<{len(counts)}I", *counts)


def _read_counts(path: Path, size: int) -> list[int]:
    """Bytes received of each block; counts beyond the end of the partial file are cut."""
    n_blocks = -(-size // BLOCK)
    try:
        stored, length = counts_file(path).read_bytes(), min(path.stat().st_size, size)
    except FileNotFoundError:
        return [0] * n_blocks
    if len(stored) != 4 * n_blocks:
        return [0] * n_blocks
    counts = struct.unpack(f"<{n_blocks}I", stored)
    return [min(count, BLOCK, max(length - block * BLOCK, 0)) for block, count in enumerate(counts)]

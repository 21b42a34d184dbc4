"""Whether bytes are what their etag says: the Hub's etags are hashes."""

from __future__ import annotations

import hashlib
from pathlib import Path

_READ = 1 << 20


class Hasher:
    """The hash the etag names: sha256 of an LFS file, git's blob hash of a small one."""

    def __init__(self, etag: str, size: int) -> None:
        self.etag, self._size = etag, size
        self.reset()

    def reset(self) -> None:
        self.count = 0
        if len(self.etag) == 40:
            self._hash = hashlib.sha1(b"blob %d\0" % self._size, usedforsecurity=False)
        else:
            self._hash = hashlib.sha256()

    def update(self, data: bytes) -> None:
        self._hash.update(data)
        self.count += len(data)

    def digest(self) -> str:
        return self._hash.hexdigest()

    def matches(self) -> bool:
        return self.digest() == self.etag


def matches_etag(file: Path) -> bool:
    """Whether a file of the cache still hashes to the etag its blob is named by.

    Files that were moved out of blobs/ (no symbolic links on that disk) cannot be told: True.
    """
    blob = file.resolve()
    if blob.parent.name != "blobs":
        return True
    hasher = Hasher(blob.name, blob.stat().st_size)
    with blob.open("rb") as content:
        for chunk in iter(lambda: content.read(_READ), b""):
            hasher.update(chunk)
    return hasher.matches()

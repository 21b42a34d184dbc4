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


def matches_etag(file: Path, sha256: str | None = None) -> bool:
    """Whether a file of the cache still hashes to the etag its blob is named by.

    Where the disk has no symbolic links, the file has left blobs/ and its etag with it: it is
    compared with `sha256`, the Hub's. Without one (a small file) nothing can be told: True.
    """
    blob = file.resolve()
    etag = blob.name if blob.parent.name == "blobs" else sha256
    if etag is None:
        return True
    hasher = Hasher(etag, blob.stat().st_size)
    with blob.open("rb") as content:
        for chunk in iter(lambda: content.read(_READ), b""):
            hasher.update(chunk)
    return hasher.matches()

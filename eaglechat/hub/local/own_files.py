"""Which file of the user's folders is one of the Hub's. Its name tells nothing: its size and its
SHA-256 do, which is computed once and kept in own-hashes.json in the state directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from eaglechat import paths, settings
from eaglechat.paths import write_atomically

_READ_BYTES = 4 << 20


class _Hash(msgspec.Struct, frozen=True):
    """What a file's content had, when it had this size and this time of change."""

    size: int
    mtime_ns: int
    sha256: str


def file_with(sha256: str) -> Path | None:
    """A file whose hash was computed and is this one, if it has not changed since."""
    for name, kept in _kept().items():
        if kept.sha256 == sha256:
            with suppress(OSError):
                if _is_of(kept, Path(name)):
                    return Path(name)
    return None


def find(size: int, sha256: str, on_read: Callable[[Path, int], None]) -> Path | None:
    """The file with this size and hash. Those of this size are read if their hash is not known;
    `on_read` gets each and how much of it is read, and may raise."""
    known = _kept()
    for path in _of_size(size):
        with suppress(OSError):
            kept = known.get(str(path))
            if kept is None or not _is_of(kept, path):
                kept = _read(path, on_read)
            if kept.sha256 == sha256:
                return path
    return None


def _is_of(kept: _Hash, path: Path) -> bool:
    stat = path.stat()
    return (kept.size, kept.mtime_ns) == (stat.st_size, stat.st_mtime_ns)


def _of_size(size: int) -> Iterator[Path]:
    for own in settings.load(paths.config_file())[0].library.folders:
        for folder, _, names in os.walk(paths.expanded(own)):
            for name in sorted(names):
                path = Path(folder, name)
                with suppress(OSError):
                    if name.lower().endswith(".gguf") and path.stat().st_size == size:
                        yield path


def _read(path: Path, on_read: Callable[[Path, int], None]) -> _Hash:
    digest, before = hashlib.sha256(), path.stat()
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            digest.update(data)
            on_read(path, file.tell())
    found = _Hash(before.st_size, before.st_mtime_ns, digest.hexdigest())
    with suppress(OSError):
        write_atomically(_file(), msgspec.json.encode({**_kept(), str(path): found}))
    return found


def _kept() -> dict[str, _Hash]:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(_file().read_bytes(), type=dict[str, _Hash])
    return {}


def _file() -> Path:
    return paths.state_dir() / "own-hashes.json"

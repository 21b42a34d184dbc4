"""Which pairs were begun and are not complete: a later session offers to go on with them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from eaglechat import paths


def begun() -> list[str]:
    """Names of pairs, the first begun first."""
    try:
        return msgspec.json.decode(_file().read_bytes(), type=list[str])
    except (OSError, msgspec.DecodeError):
        return []


def begin(name: str) -> None:
    _write([*(known for known in begun() if known != name), name])


def end(name: str) -> None:
    """A pair is complete, or not wanted any more."""
    names = begun()
    if name in names:
        names.remove(name)
        _write(names)


def _write(names: list[str]) -> None:
    try:
        paths.write_atomically(_file(), msgspec.json.encode(names))
    except OSError:
        # The files are kept all the same; only the offer to go on is lost.
        return


def _file() -> Path:
    return paths.state_dir() / "downloads.json"

"""Keeps on disk what llama.cpp did without when a model ran after a crash.

The next start on this machine then does not crash first.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from pathlib import Path

import msgspec

from eaglechat import paths
from eaglechat.wire.load_options import LeaveOut

_MOST_REMEMBERED = 16


class Workaround(msgspec.Struct, frozen=True, kw_only=True):
    """What one build of llama.cpp did without on these devices, the CPU among them."""

    library: str
    devices: tuple[str, ...]
    left_out: tuple[LeaveOut, ...]
    since: date


def remembered(library: str, devices: tuple[str, ...]) -> Workaround | None:
    """What worked with this build and these devices; None if nothing is known."""
    known = (one for one in _all() if (one.library, one.devices) == (library, devices))
    return next(known, None)


def remember(left_out: tuple[LeaveOut, ...], library: str, devices: tuple[str, ...]) -> None:
    """Keep that a model has run without these. If the disk cannot be written, the next start
    crashes once more."""
    before = remembered(library, devices)
    if before is not None and before.left_out == left_out:
        return
    new = Workaround(library=library, devices=devices, left_out=left_out, since=date.today())
    kept = [one for one in _all() if one != before][-_MOST_REMEMBERED + 1 :]
    with suppress(OSError):
        paths.write_atomically(_path(), msgspec.json.format(msgspec.json.encode([*kept, new])))


def _path() -> Path:
    return paths.state_dir() / "llama-cpp.json"


def _all() -> list[Workaround]:
    with suppress(OSError, ValueError, RecursionError):
        return msgspec.json.decode(_path().read_bytes(), type=list[Workaround])
    return []

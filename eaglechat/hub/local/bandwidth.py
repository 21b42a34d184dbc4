"""How fast this machine reads weights, as the latest load measured it; from it follows how fast a
model that is not here would be. It is bandwidth.json in the state directory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from eaglechat.paths import write_atomically
from eaglechat.wire.protocol import Bandwidth


def measured(state_dir: Path) -> Bandwidth | None:
    """None before a load has measured it."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(_file(state_dir).read_bytes(), type=Bandwidth)
    return None


def note(state_dir: Path, bandwidth: Bandwidth | None) -> None:
    """Keep what a load measured, if it did. What cannot be written is measured again."""
    if bandwidth is not None:
        with suppress(OSError):
            write_atomically(_file(state_dir), msgspec.json.encode(bandwidth))


def _file(state_dir: Path) -> Path:
    return state_dir / "bandwidth.json"

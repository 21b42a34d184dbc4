"""How fast this machine reads weights, as the latest load measured it; from it follows how fast a
model that is not here would be. It is bandwidth.json in the state directory."""

from __future__ import annotations

from pathlib import Path

from eaglechat.hub.local.state import StateFile
from eaglechat.wire.protocol import Bandwidth


def measured(state_dir: Path) -> Bandwidth | None:
    """None before a load has measured it."""
    return StateFile("bandwidth.json", Bandwidth, state_dir).read(None)


def note(state_dir: Path, bandwidth: Bandwidth | None) -> None:
    """Keep what a load measured, if it did."""
    if bandwidth is not None:
        StateFile("bandwidth.json", Bandwidth, state_dir).write(bandwidth)

"""What training raises: every message is one sentence that names the cause."""

from __future__ import annotations

from eaglechat.wire.errors import EngineError


class TrainingError(EngineError):
    """What training cannot do."""


class PausedError(Exception):
    """Ctrl+C: everything done so far is on disk, and the same command goes on from there."""

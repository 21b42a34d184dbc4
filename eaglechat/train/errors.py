"""What training raises: every message is one sentence that names the cause."""

from __future__ import annotations


class TrainingError(RuntimeError):
    """Something the user can be told."""


class PausedError(Exception):
    """Ctrl+C: everything done so far is on disk, and the same command goes on from there."""

"""What was timed of a pair before its first reply."""

from __future__ import annotations

from dataclasses import dataclass

from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

CALIBRATED_WIDTHS = (1, 2, 4, 8, 9, N_DRAFT_MAX_LIMIT + 1)
"""Twice as wide each time, and one beyond 8, where llama.cpp changes its CUDA kernels."""
CALIBRATED_DRAFT = 3
"""Tokens of the draft that is timed."""
CALIBRATED_TREE = 8
"""Tokens of the tree that is timed."""


@dataclass(frozen=True)
class Calibration:
    """Milliseconds, each measured alone; None where there was no time to."""

    verify: tuple[tuple[int, float], ...] = ()
    """By width, ascending from 1, of decoding a batch with all its outputs, features included."""
    draft: float | None = None
    """Of drafting `CALIBRATED_DRAFT` tokens after a round of which one was accepted."""
    catch_up_row: float | None = None
    """Of a row that waits for the draft, where many do."""
    sibling: float | None = None
    """Of a token beside others in a tree."""


NOT_CALIBRATED = Calibration()

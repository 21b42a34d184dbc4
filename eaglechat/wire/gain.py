"""A gain: how many times as fast as plain decoding, and what may be claimed of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SAME_WITHIN = 0.05
"""Speeds that differ by no more than this share count as the same."""

GainVerdict = Literal["faster", "same", "slower", "unclear"]


def verdict_of(speed_up: float, error: float | None) -> GainVerdict:
    """What holds in all of `speed_up` ± `error`. `unclear` if nothing does, or if the error is not
    known (None)."""
    if error is None:
        return "unclear"
    low, high = speed_up - error, speed_up + error
    if low >= 1.0 - SAME_WITHIN and high <= 1.0 + SAME_WITHIN:
        return "same"
    if low > 1.0:
        return "faster"
    return "slower" if high < 1.0 else "unclear"


def most(verify_ms: Mapping[int, float], longest: int) -> float | None:
    """How many times as fast as plain decoding drafts of up to `longest` tokens can be: with one
    that costs nothing and is always right, a round writes as many tokens as it has rows.
    `verify_ms` has the times of passes by rows; None if those of one row or of more are not
    known."""
    one = verify_ms.get(1)
    rows = [n for n in verify_ms if 1 < n <= longest + 1]
    return max(n * one / verify_ms[n] for n in rows) if one and rows else None


@dataclass(frozen=True)
class MeasuredGain:
    """Times as fast as plain decoding, plus or minus the error at 95%; None if it is not known."""

    speed_up: float
    error: float | None

    @property
    def verdict(self) -> GainVerdict:
        return verdict_of(self.speed_up, self.error)

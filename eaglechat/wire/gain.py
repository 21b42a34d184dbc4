"""A gain: how many times as fast as plain decoding, and what may be claimed of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import atan, cos, pi, sin, sqrt
from typing import Literal

SAME_WITHIN = 0.05
"""Speeds that differ by no more than this share count as the same."""
_MOST_FREEDOM = 200
"""Degrees of freedom above which more make no difference."""

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


def student_t(freedom: float, share: float = 0.975) -> float:
    """The quantile `share` (above 0.5) of Student's distribution with so many degrees of freedom,
    at least 1; a fraction of one is left out. The default: how many standard errors wide half of a
    95% interval is, if the error itself was estimated from few values."""
    freedom, within = min(int(freedom), _MOST_FREEDOM), 2.0 * share - 1.0
    low, high = 0.0, 1.0
    while _within(high, freedom) < within and high < 1e12:
        low, high = high, 2.0 * high
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _within(middle, freedom) < within else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """The probability of a value between -`t` and `t`: the finite series for a whole number of
    degrees of freedom."""
    angle = atan(t / sqrt(freedom))
    is_even = freedom % 2 == 0
    term = 1.0 if is_even else cos(angle)
    total = term if freedom > 1 else 0.0
    for k in range(2 if is_even else 3, freedom, 2):
        term *= (k - 1) / k * cos(angle) ** 2
        total += term
    return sin(angle) * total if is_even else 2.0 / pi * (angle + sin(angle) * total)

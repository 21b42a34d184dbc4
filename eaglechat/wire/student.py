"""Student's distribution: how many standard errors wide an interval is, if the error itself was
estimated from few values."""

from __future__ import annotations

from math import atan, cos, pi, sin, sqrt

_MOST_FREEDOM = 200
"""More make no difference."""


def student_t(freedom: float, share: float = 0.975) -> float:
    """The quantile `share` (above 0.5) with so many degrees of freedom, at least 1; a fraction of
    one is left out. The default is the half-width of a 95% interval."""
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

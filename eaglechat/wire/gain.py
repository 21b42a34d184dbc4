"""A gain: how many times as fast as plain decoding, what may be claimed of it, and how it is
measured in a reply, by the plain rounds among its rounds.

A plain round is a measurement if the round before it was plain, too: behind a drafted one it takes
longer, because llama.cpp cannot reuse the graph of a batch of another width. Every other round
belongs to the nearest measurement: a group has those beside each other, and the other rounds around
them, here called drafted. Plain decoding would have taken the tokens of a group times the mean time
of its measurements, without what they did for later drafts. The speed-up is the sum of that over
the groups, divided by the time that all their rounds took. The machine may be twice as slow for a
minute: then both are.

The error has what the groups differ by beyond the luck of the drafts, which is no error: these
tokens were written in this time. So a group's residual is computed with the mean number of tokens
of all drafted rounds, and has how much the times of plain and drafted rounds vary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import atan, cos, hypot, pi, sin, sqrt
from typing import Literal

SAME_WITHIN = 0.05
"""Speeds that differ by no more than this share count as the same."""
_MOST_FREEDOM = 200
"""Degrees of freedom above which more make no difference."""
FEWEST_GROUPS = 3
"""Of fewer groups with drafted rounds the error is not known well enough to tell anything."""
_JOINED = 4
"""The most plain rounds beside each other that make one group."""
_FEW_DRAFTED = 0.05
"""A share of the time so small that it does not matter how fast the drafted rounds were."""
_SYSTEMATIC = 0.015
"""Plain rounds of a reply that drafts may take a little longer than those of one that does not: the
target still writes the features that the draft reads. A share of the speed-up."""

GainVerdict = Literal["faster", "same", "slower", "unclear"]


@dataclass(frozen=True)
class MeasuredGain:
    """Times as fast as plain decoding, plus or minus the error at 95%; None if it is not known."""

    speed_up: float
    error: float | None

    @property
    def verdict(self) -> GainVerdict:
        """What holds in all of `speed_up` ± `error`. `unclear` if nothing does, or if the error is
        not known."""
        if self.error is None:
            return "unclear"
        low, high = self.speed_up - self.error, self.speed_up + self.error
        if low >= 1.0 - SAME_WITHIN and high <= 1.0 + SAME_WITHIN:
            return "same"
        if low > 1.0:
            return "faster"
        return "slower" if high < 1.0 else "unclear"


@lru_cache
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


@dataclass
class _Group:
    """Measurements beside each other, and the drafted rounds nearest to them: of both their tokens,
    and the milliseconds that they took. `plain_ms` is what plain decoding takes of `ms`."""

    measurements: int = 0
    tokens: int = 0
    ms: float = 0.0
    plain_ms: float = 0.0
    drafted: int = 0
    drafted_tokens: int = 0
    drafted_ms: float = 0.0

    def take(self, rounds: Iterable[tuple[int, float]]) -> None:
        """Drafted rounds: the tokens and the milliseconds of each."""
        for tokens, ms in rounds:
            self.drafted += 1
            self.drafted_tokens += tokens
            self.drafted_ms += ms

    @property
    def a_token(self) -> float:
        return self.plain_ms / self.tokens


class GainOfRounds:
    """Adds rounds one by one; `gain()` is of all so far."""

    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._was_plain = False
        self._behind: list[tuple[int, float]] = []
        """The drafted rounds behind the last group, which the next one shares."""

    def add(self, tokens: int, ms: float, plain_ms: float | None) -> None:
        """A round wrote so many tokens in `ms`. If it was plain, `plain_ms` of these are of plain
        decoding, and there is a token at least; else it is None."""
        is_measurement = plain_ms is not None and self._was_plain
        self._was_plain = plain_ms is not None
        if plain_ms is None or not is_measurement:
            self._behind.append((tokens, ms))
            return
        if not self._groups or self._behind or self._groups[-1].measurements == _JOINED:
            half = (len(self._behind) + 1) // 2 if self._groups else 0
            for group in self._groups[-1:]:
                group.take(self._behind[:half])
            self._groups.append(_Group())
            self._groups[-1].take(self._behind[half:])
            self._behind = []
        group = self._groups[-1]
        group.measurements += 1
        group.tokens += tokens
        group.ms += ms
        group.plain_ms += plain_ms

    def gain(self) -> MeasuredGain | None:
        """None while there is too little to tell."""
        if not self._groups:
            return None
        last = replace(self._groups[-1])
        last.take(self._behind)
        groups = [*self._groups[:-1], last]
        drafted_ms = sum(one.drafted_ms for one in groups)
        ms = sum(one.ms for one in groups) + drafted_ms
        n = sum(one.drafted > 0 for one in groups)
        is_plain = len(groups) >= FEWEST_GROUPS and drafted_ms <= _FEW_DRAFTED * ms
        if ms <= 0.0 or not (n >= FEWEST_GROUPS or is_plain):
            return None
        drafted_tokens = sum(one.drafted_tokens for one in groups)
        as_plain = sum(one.plain_ms + one.drafted_tokens * one.a_token for one in groups)
        times, error = as_plain / ms, 0.0
        if n >= FEWEST_GROUPS:
            each = drafted_tokens / sum(one.drafted for one in groups)
            expected = [each * one.drafted * one.a_token for one in groups]
            rate = sum(expected) / drafted_ms
            squares = sum(
                (plain_ms - rate * one.drafted_ms) ** 2
                for plain_ms, one in zip(expected, groups, strict=True)
            )
            error = student_t(n - 1) * sqrt(squares * n / (n - 1)) / ms
        return MeasuredGain(times, hypot(error, _SYSTEMATIC * times))

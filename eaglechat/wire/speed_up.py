"""How many times as fast as plain decoding some rounds were, measured by the plain rounds among
them.

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

from dataclasses import dataclass
from functools import lru_cache
from math import hypot, sqrt

from eaglechat.wire.gain import MeasuredGain
from eaglechat.wire.student import student_t

FEWEST_GROUPS = 3
"""Of fewer groups with drafted rounds the error is not known well enough to tell anything."""
_JOINED = 4
"""The most plain rounds beside each other that make one group."""
_FEW_DRAFTED = 0.05
"""A share of the time so small that it does not matter how fast the drafted rounds were."""
_SYSTEMATIC = 0.015
"""Plain rounds of a reply that drafts may take a little longer than those of one that does not: the
target still writes the features that the draft reads. A share of the speed-up."""
_t = lru_cache(student_t)


@dataclass(frozen=True)
class SpeedUp:
    """The speed of some rounds against plain decoding."""

    gain: MeasuredGain
    plain_per_second: float
    """Tokens per second that plain decoding would have had over these rounds."""


@dataclass(frozen=True)
class _Rounds:
    """How many rounds, their tokens, and the milliseconds that they took; of measurements also
    those that plain decoding takes."""

    count: int = 0
    tokens: int = 0
    ms: float = 0.0
    plain_ms: float = 0.0

    def __add__(self, other: _Rounds) -> _Rounds:
        return _Rounds(
            self.count + other.count,
            self.tokens + other.tokens,
            self.ms + other.ms,
            self.plain_ms + other.plain_ms,
        )


_NONE = _Rounds()


@dataclass(frozen=True)
class _Group:
    """Plain rounds beside each other, and the drafted ones nearest to them."""

    plain: _Rounds
    drafted: _Rounds = _NONE


@dataclass(frozen=True)
class _Groups:
    """Sums over groups. In a group of k drafted rounds, which took x ms, a token takes p ms in
    plain decoding."""

    count: int = 0
    with_drafts: int = 0
    plain: _Rounds = _NONE
    drafted: _Rounds = _NONE
    as_plain: float = 0.0
    """Of p times the tokens of the drafted rounds."""
    kp: float = 0.0
    kp_kp: float = 0.0
    kp_x: float = 0.0
    x_x: float = 0.0

    def __add__(self, group: _Group) -> _Groups:
        p, x = group.plain.plain_ms / group.plain.tokens, group.drafted.ms
        kp = group.drafted.count * p
        return _Groups(
            count=self.count + 1,
            with_drafts=self.with_drafts + (group.drafted.count > 0),
            plain=self.plain + group.plain,
            drafted=self.drafted + group.drafted,
            as_plain=self.as_plain + group.drafted.tokens * p,
            kp=self.kp + kp,
            kp_kp=self.kp_kp + kp * kp,
            kp_x=self.kp_x + kp * x,
            x_x=self.x_x + x * x,
        )

    def speed_up(self) -> SpeedUp | None:
        all_rounds, n = self.plain + self.drafted, self.with_drafts
        is_known = n >= FEWEST_GROUPS
        is_plain = self.count >= FEWEST_GROUPS and self.drafted.ms <= _FEW_DRAFTED * all_rounds.ms
        if all_rounds.ms <= 0.0 or not (is_known or is_plain):
            return None
        as_plain = self.plain.plain_ms + self.as_plain
        times, error = as_plain / all_rounds.ms, 0.0
        if is_known:
            each = self.drafted.tokens / self.drafted.count
            rate = each * self.kp / self.drafted.ms
            squares = each**2 * self.kp_kp - 2.0 * each * rate * self.kp_x + rate**2 * self.x_x
            scatter = sqrt(max(0.0, squares) * n / (n - 1)) / all_rounds.ms
            error = _t(n - 1) * scatter
        error = hypot(error, _SYSTEMATIC * times)
        return SpeedUp(MeasuredGain(times, error), 1000.0 * all_rounds.tokens / as_plain)


class SpeedUpFold:
    """Adds rounds one by one, at a cost that does not grow; `speed_up()` is of all so far."""

    def __init__(self) -> None:
        self._closed = _Groups()
        self._group: _Group | None = None
        """The last one, without the rounds behind it."""
        self._was_plain = False
        self._behind: list[_Rounds] = []
        """The drafted rounds since the last plain one, or since the beginning."""
        self._all_behind = _NONE

    def add(self, tokens: int, ms: float, plain_ms: float | None) -> None:
        """A round wrote so many tokens in `ms`. If it was plain, `plain_ms` of these are of plain
        decoding, and there is a token at least; else it is None."""
        new, group = _Rounds(1, tokens, ms, plain_ms or 0.0), self._group
        is_measurement = plain_ms is not None and self._was_plain
        self._was_plain = plain_ms is not None
        if not is_measurement:
            self._behind.append(new)
            self._all_behind += new
            return
        if group is None:
            self._group = _Group(new, self._all_behind)
        elif not self._behind and group.plain.count < _JOINED:
            self._group = _Group(group.plain + new, group.drafted)
        else:
            near = sum(self._behind[: (len(self._behind) + 1) // 2], _NONE)
            far = sum(self._behind[(len(self._behind) + 1) // 2 :], _NONE)
            self._closed += _Group(group.plain, group.drafted + near)
            self._group = _Group(new, far)
        self._behind, self._all_behind = [], _NONE

    def speed_up(self) -> SpeedUp | None:
        """None while there is too little to tell."""
        if self._group is None:
            return None
        last = _Group(self._group.plain, self._group.drafted + self._all_behind)
        return (self._closed + last).speed_up()

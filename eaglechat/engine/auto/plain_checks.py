"""When a reply that drafts decodes a round plainly, to measure what plain decoding takes.

The screen says of each reply how many times as fast as plain decoding it is. That is measured in
the reply itself, as the machine is now and in this context, so some of its rounds are plain: two
beside each other, as only the second one is a measurement (`wire/gain.py`). There is no clock
here: the same rounds lead to the same checks.
"""

from __future__ import annotations

from eaglechat.wire.gain import SpeedUpFold
from eaglechat.wire.records import Round

_FIRST = 2
"""Rounds before the first check."""
_APART = 4
"""The fewest rounds between two checks."""
_SHARE_APART = 1 / 8
"""A check is due after this share of the rounds, however small the error: the machine may be slower
by now."""
_ENOUGH = 0.025
"""The error of the speed-up, as a share of it, below which the checks become rare."""
_MOST_LOST = 0.02
"""What checks may cost: this share of the reply's time, beside the first check."""


class PlainChecks:
    """Decides from the rounds of a reply, since its draft length was last set by hand."""

    def __init__(self, *, goes_on: bool = False) -> None:
        """A reply that goes on had its first check before."""
        self._goes_on = goes_on
        self._length: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._fold = SpeedUpFold()
        self._rounds = self._since = self._tokens = self._checks = 0
        self._ms = self._checks_ms = 0.0
        self._plain = 0
        self._is_half_done = False
        """The first round of a check was the last one."""

    def add(self, round_: Round) -> None:
        if round_.length_by_hand != self._length:
            self._length = round_.length_by_hand
            self._begin()
        ms = round_.timings.total_ms
        self._fold.add(len(round_.tokens), ms, round_.plain_ms)
        self._rounds += 1
        self._since = 0 if round_.is_plain else self._since + 1
        self._is_half_done = round_.is_plain_check and not self._is_half_done
        self._plain += round_.is_plain
        if round_.is_plain_check:
            self._checks += 1
            self._checks_ms += ms
        else:
            self._tokens += len(round_.tokens)
            self._ms += ms

    def is_due(self, length: int | None) -> bool:
        """Whether the next round is to be plain, if this length is set by hand; None: auto."""
        if length != self._length or not self._tokens:
            return False
        if self._is_half_done:
            return True
        if not self._plain:
            return self._rounds >= _FIRST and (not self._goes_on or self._is_affordable())
        if self._since < _APART:
            return False
        known = self._fold.speed_up()
        error = known.gain.error / known.gain.speed_up if known and known.gain.error else 1.0
        is_due = error > _ENOUGH or self._since >= _SHARE_APART * self._rounds
        return is_due and self._is_affordable()

    def _is_affordable(self) -> bool:
        """Whether one more check, of two rounds, keeps what they cost within bounds: their time
        without that of their tokens at the pace of the other rounds."""
        pace = self._ms / self._tokens
        n = self._checks
        each = self._checks_ms / n if n else self._ms / (self._rounds - n)
        return (n + 2) * max(0.0, each - pace) <= _MOST_LOST * (self._ms + self._checks_ms)

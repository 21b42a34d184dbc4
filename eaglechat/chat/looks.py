"""In which order those that are measured take turns, when a measurement that goes on until it can
tell is looked at, and how much each look may claim.

Whoever looks again and again at noise sees a gain sooner or later. So all looks share an error
probability of 5%: a quarter of it is the first one's, half as much each following one's, and the
last one, when time is up or the user stops, has all that is left. Looks double what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TypeVar

T = TypeVar("T")

LEVEL = 0.05
"""In so many of all measurements a verdict may be wrong."""


class Looks:
    """Counts the looks at one measurement."""

    def __init__(self, first: int) -> None:
        """`first`: after so many repetitions comes the first look, then after twice as many."""
        self.next = first
        """Repetitions after which the next look is due."""
        self._level, self._left = LEVEL / 4, LEVEL

    def take(self) -> float:
        """The error probability of a look after which it may go on."""
        self.next *= 2
        level, self._level = self._level, self._level / 2
        self._left -= level
        return level

    def last(self) -> float:
        """That of the last look."""
        return self._left


def minutes_for(tokens: int, plain_ms: float | None, least: int) -> int:
    """Whole minutes, at least `least`, in which so many tokens are written twice. `plain_ms` is the
    time of one, None if it is not known."""
    return max(least, ceil(2 * tokens * (plain_ms or 0.0) / 60_000.0))


def order_of(contenders: Sequence[T], turn: int) -> list[T]:
    """The order of the contenders in a turn. It changes, so that none always follows the same other
    one: a heavy one may slow the next."""
    first = turn // 2 % len(contenders)
    order = [*contenders[first:], *contenders[:first]]
    return order if turn % 2 == 0 else order[::-1]

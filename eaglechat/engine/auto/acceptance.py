"""How likely the target accepts a drafted token, by the probability that its drafter gives it.

What is counted fades: the latest rounds tell most.
"""

from __future__ import annotations

from collections.abc import Sequence

_DISCOUNT = 0.97
"""Weight that counts keep when one more comes: the last thirty decide."""
WEIGHT = 3.0
"""What a first guess counts: one unlucky draft must not outweigh a usual one's rate."""
_BINS = 10
"""Steps of the drafter's probability: finer ones would be counted too rarely."""


class Counts:
    """Discounted means of what is counted at some places."""

    def __init__(self, places: int, discount: float = _DISCOUNT) -> None:
        self.sums, self.tries, self._discount = [0.0] * places, [0.0] * places, discount

    def add(self, place: int, value: float) -> None:
        self.sums[place] = self.sums[place] * self._discount + value
        self.tries[place] = self.tries[place] * self._discount + 1.0

    def scale(self, factor: float) -> None:
        self.sums = [value * factor for value in self.sums]
        self.tries = [tries * factor for tries in self.tries]

    def mean(self, place: int, guess: float) -> float:
        """The mean, with a guess at it before the first."""
        return (self.sums[place] + WEIGHT * guess) / (self.tries[place] + WEIGHT)


class Acceptance:
    """What is known of a drafter's acceptance, by its own probability."""

    def __init__(self) -> None:
        self._counts = Counts(_BINS)

    def note(self, probability: float, accepted: bool) -> None:
        """The target was asked about a token of this probability."""
        self._counts.add(_bin(probability), accepted)

    def by_probability(self) -> tuple[float, ...]:
        """P(accepted | reached) by steps of the drafter's probability, never falling."""
        counts = self._counts
        pools: list[tuple[float, float, int]] = []
        for place in range(_BINS):
            wins = counts.sums[place] + WEIGHT * (place + 0.5) / _BINS
            pool = (wins, counts.tries[place] + WEIGHT, 1)
            # Steps out of order are taken together: the one seldom tried gives way.
            while pools and pools[-1][0] / pools[-1][1] > pool[0] / pool[1]:
                before = pools.pop()
                pool = (before[0] + pool[0], before[1] + pool[1], before[2] + pool[2])
            pools.append(pool)
        return tuple(wins / tries for wins, tries, steps in pools for _ in range(steps))


def accept_rate(by_probability: Sequence[float], probability: float) -> float:
    """The acceptance that goes with a drafter's probability."""
    return by_probability[_bin(probability)]


def _bin(probability: float) -> int:
    return min(int(probability * _BINS), _BINS - 1)

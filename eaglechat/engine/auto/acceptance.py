"""How likely the target accepts a token, given the drafter's own probability of it.

Counts fade, so the latest rounds weigh most.
"""

from __future__ import annotations

from collections.abc import Sequence

_DISCOUNT = 0.97
"""A count is multiplied by this when the next one comes: about the last thirty decide."""
WEIGHT = 3.0
"""A first guess counts as much as this many observations, so one unlucky draft does not outweigh
it."""
_BINS = 10
"""Steps of the drafter's probability. Finer steps would be observed too rarely."""


class Counts:
    """Discounted means, one for each of a number of places."""

    def __init__(self, places: int, discount: float = _DISCOUNT) -> None:
        self.sums, self.tries, self._discount = [0.0] * places, [0.0] * places, discount

    def add(self, place: int, value: float) -> None:
        self.sums[place] = self.sums[place] * self._discount + value
        self.tries[place] = self.tries[place] * self._discount + 1.0

    def scale(self, factor: float) -> None:
        self.sums = [value * factor for value in self.sums]
        self.tries = [tries * factor for tries in self.tries]

    def mean(self, place: int, guess: float) -> float:
        """The mean at a place, beginning with `guess`."""
        return (self.sums[place] + WEIGHT * guess) / (self.tries[place] + WEIGHT)


class Acceptance:
    """Acceptance rates of a drafter by its own probability."""

    def __init__(self) -> None:
        self._counts = Counts(_BINS)

    def note(self, probability: float, accepted: bool) -> None:
        """The target was asked about a token of this probability."""
        self._counts.add(_bin(probability), accepted)

    def by_probability(self) -> tuple[float, ...]:
        """P(accepted | all before it on the path were) for each step of the drafter's probability.
        A higher step never has a lower rate."""
        counts = self._counts
        pools: list[tuple[float, float, int]] = []
        for place in range(_BINS):
            wins = counts.sums[place] + WEIGHT * (place + 0.5) / _BINS
            pool = (wins, counts.tries[place] + WEIGHT, 1)
            # Adjacent steps in the wrong order are pooled, so the one with fewer tries gives way.
            while pools and pools[-1][0] / pools[-1][1] > pool[0] / pool[1]:
                before = pools.pop()
                pool = (before[0] + pool[0], before[1] + pool[1], before[2] + pool[2])
            pools.append(pool)
        return tuple(wins / tries for wins, tries, steps in pools for _ in range(steps))


def accept_rate(by_probability: Sequence[float], probability: float) -> float:
    """The acceptance rate for a drafter's probability."""
    return by_probability[_bin(probability)]


def _bin(probability: float) -> int:
    return min(int(probability * _BINS), _BINS - 1)

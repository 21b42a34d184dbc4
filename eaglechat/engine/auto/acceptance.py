"""How likely the target accepts a drafted token: by position, and by the draft's own probability.

Only positions that were reached learn: what the target made of the first two says nothing of a
third that was never tested.
"""

from __future__ import annotations

from collections.abc import Sequence

from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

_DISCOUNT = 0.97
"""Weight that counts keep when one more comes: the last thirty decide."""
_SLOWLY = 0.995
"""The same for the long run, and after a round that drafted nothing: the text moves on."""
_PRIOR, _WEIGHT = 0.6, 3.0
"""The first guess, and what it counts: one unlucky draft must not outweigh a usual one's rate."""
_BINS = 10
"""Steps of the draft's probability: finer ones would be counted too rarely."""


class _Counts:
    """Discounted successes and trials at some places."""

    def __init__(self, places: int, discount: float = _DISCOUNT) -> None:
        self.wins, self.tries, self._discount = [0.0] * places, [0.0] * places, discount

    def add(self, place: int, won: bool) -> None:
        self.wins[place] = self.wins[place] * self._discount + won
        self.tries[place] = self.tries[place] * self._discount + 1.0

    def scale(self, factor: float) -> None:
        self.wins = [wins * factor for wins in self.wins]
        self.tries = [tries * factor for tries in self.tries]

    def rate(self, place: int, guess: float) -> float:
        """The share of successes, with a guess at it before the first."""
        return (self.wins[place] + _WEIGHT * guess) / (self.tries[place] + _WEIGHT)


class Acceptance:
    """What is known of a draft's acceptance."""

    def __init__(self) -> None:
        self._accepted, self._kept = _Counts(N_DRAFT_MAX_LIMIT), _Counts(N_DRAFT_MAX_LIMIT)
        self._by_probability = _Counts(_BINS)
        self._long_run = _Counts(1, _SLOWLY)
        self._long_run.wins[0], self._long_run.tries[0] = _PRIOR * _WEIGHT, _WEIGHT

    def note(
        self, n_wanted: int, probabilities: Sequence[float], n_tested: int, n_accepted: int
    ) -> None:
        """A round wanted `n_wanted` tokens and drafted some, with these probabilities.

        A draft that stopped by itself counts as not accepted at the position it gave up, so that
        the rates are those of drafting as it is done.
        """
        n_drafted = len(probabilities)
        self._long_run.add(0, n_accepted > 0)
        for place in range(n_tested):
            self._accepted.add(place, place < n_accepted)
            self._by_probability.add(_bin(probabilities[place]), place < n_accepted)
        for place in range(min(n_drafted + 1, n_wanted)):
            self._kept.add(place, place < n_drafted)
        if n_accepted == n_drafted < n_wanted:
            self._accepted.add(n_drafted, False)

    def age(self, rounds: int) -> None:
        """Rounds passed that tested nothing."""
        self._accepted.scale(_SLOWLY**rounds)

    def expected(self, deviations: float = 0.0) -> list[float]:
        """P(accepted | reached) by position, or so many standard deviations more."""
        rates, rate = [], self._long_run.rate(0, _PRIOR)
        for place, tries in enumerate(self._accepted.tries):
            # A position hardly reached is taken to be like the one before it.
            rate = self._accepted.rate(place, rate)
            spread = (rate * (1.0 - rate) / (tries + _WEIGHT + 1.0)) ** 0.5
            rates.append(min(rate + deviations * spread, 1.0))
        return rates

    def kept(self) -> list[float]:
        """P(a further token is drafted | those before it were) by position."""
        return [self._kept.rate(place, 1.0) for place in range(N_DRAFT_MAX_LIMIT)]

    def by_probability(self) -> tuple[float, ...]:
        """P(accepted | reached) by steps of the draft's own probability, never falling."""
        counts = self._by_probability
        pools: list[tuple[float, float, int]] = []
        for place in range(_BINS):
            wins = counts.wins[place] + _WEIGHT * (place + 0.5) / _BINS
            pool = (wins, counts.tries[place] + _WEIGHT, 1)
            # Steps out of order are taken together: the one seldom tried gives way.
            while pools and pools[-1][0] / pools[-1][1] > pool[0] / pool[1]:
                before = pools.pop()
                pool = (before[0] + pool[0], before[1] + pool[1], before[2] + pool[2])
            pools.append(pool)
        return tuple(wins / tries for wins, tries, steps in pools for _ in range(steps))


def accept_rate(by_probability: Sequence[float], probability: float) -> float:
    """The acceptance that goes with a draft probability."""
    return by_probability[_bin(probability)]


def _bin(probability: float) -> int:
    return min(int(probability * _BINS), _BINS - 1)

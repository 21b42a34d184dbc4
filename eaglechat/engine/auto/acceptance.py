"""How likely the target accepts a drafted token: by position, and by the draft's own probability.

Counts are discounted, so that the last few dozen rounds decide. Only positions that were reached
learn: what the target made of the first two says nothing of a third that was never tested.
"""

from __future__ import annotations

from collections.abc import Sequence

from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

_DISCOUNT = 0.97
_AGEING = 0.995
"""Discount of all counts by a round that drafted nothing: the text moves on, the counts do not."""
_NEW_REPLY = 0.5
"""Share of the counts that a new reply starts with."""
_FIRST_PRIOR, _FIRST_WEIGHT = 0.6, 2.0
_LONG_DISCOUNT, _LONG_WEIGHT = 0.995, 6.0
"""The weight is of the first guess: a few unlucky drafts must not end drafting for a whole chat."""
_NEXT_WEIGHT = 3.0
_BINS = 10
_BIN_WEIGHT = 4.0


class _Counts:
    """Discounted successes and trials at some places."""

    def __init__(self, places: int) -> None:
        self.wins = [0.0] * places
        self.tries = [0.0] * places

    def add(self, place: int, won: bool) -> None:
        self.wins[place] = self.wins[place] * _DISCOUNT + won
        self.tries[place] = self.tries[place] * _DISCOUNT + 1.0

    def scale(self, factor: float) -> None:
        self.wins = [wins * factor for wins in self.wins]
        self.tries = [tries * factor for tries in self.tries]


class Acceptance:
    """What is known of a draft's acceptance."""

    def __init__(self) -> None:
        self._accepted = _Counts(N_DRAFT_MAX_LIMIT)
        self._kept = _Counts(N_DRAFT_MAX_LIMIT)
        self._by_probability = _Counts(_BINS)
        self._long_wins, self._long_tries = _FIRST_PRIOR * _LONG_WEIGHT, _LONG_WEIGHT

    def note(self, n_wanted: int, n_drafted: int, n_tested: int, n_accepted: int) -> None:
        """A round that wanted `n_wanted` tokens drafted.

        A draft that stopped by itself counts as not accepted at the position it gave up, so that
        the rates are those of drafting as it is done.
        """
        self._long_wins = self._long_wins * _LONG_DISCOUNT + (n_accepted > 0)
        self._long_tries = self._long_tries * _LONG_DISCOUNT + 1.0
        for position in range(n_tested):
            self._accepted.add(position, position < n_accepted)
        for position in range(n_drafted):
            self._kept.add(position, True)
        if n_drafted < n_wanted:
            self._kept.add(n_drafted, False)
            if n_accepted == n_drafted:
                self._accepted.add(n_drafted, False)

    def note_probabilities(
        self, probabilities: Sequence[float], n_tested: int, n_accepted: int
    ) -> None:
        """The draft gave its tokens these probabilities; the target tested the first ones."""
        for position in range(n_tested):
            self._by_probability.add(_bin(probabilities[position]), position < n_accepted)

    def age(self, rounds: int) -> None:
        """Rounds passed that tested nothing."""
        self._accepted.scale(_AGEING**rounds)

    def new_reply(self) -> None:
        """Another text begins: what was learnt is a hint."""
        self._accepted.scale(_NEW_REPLY)
        self._kept.scale(_NEW_REPLY)

    def expected(self) -> list[float]:
        """P(accepted | reached) by position."""
        return self._rates(0.0)

    def hoped(self, deviations: float) -> list[float]:
        """As `expected`, so many standard deviations up."""
        return self._rates(deviations)

    def _rates(self, deviations: float) -> list[float]:
        rates = []
        prior, weight = self._long_wins / self._long_tries, _FIRST_WEIGHT
        for wins, tries in zip(self._accepted.wins, self._accepted.tries, strict=True):
            rate = (wins + weight * prior) / (tries + weight)
            # A position hardly reached is taken to be like the one before it.
            prior, weight = rate, _NEXT_WEIGHT
            spread = (rate * (1.0 - rate) / (tries + weight + 1.0)) ** 0.5
            rates.append(min(rate + deviations * spread, 0.99))
        return rates

    def kept(self) -> list[float]:
        """P(a further token is drafted | those before it were) by position."""
        pairs = zip(self._kept.wins, self._kept.tries, strict=True)
        return [(wins + 1.0) / (tries + 1.0) for wins, tries in pairs]

    def by_probability(self) -> tuple[float, ...]:
        """P(accepted | reached) by tenth of the draft's own probability, never falling."""
        rates: list[float] = []
        for index, (wins, tries) in enumerate(
            zip(self._by_probability.wins, self._by_probability.tries, strict=True)
        ):
            prior = (index + 0.5) / _BINS
            rate = (wins + _BIN_WEIGHT * prior) / (tries + _BIN_WEIGHT)
            rates.append(max(rate, rates[-1] if rates else 0.0))
        return tuple(rates)


def accept_rate(by_probability: Sequence[float], probability: float) -> float:
    """The acceptance that goes with a draft probability."""
    return by_probability[_bin(probability)]


def _bin(probability: float) -> int:
    return min(int(probability * _BINS), _BINS - 1)

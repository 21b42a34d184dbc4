"""How likely the target accepts a draft token: given how sure the drafter is of it, and given its
place in the draft, for chains and for trees.

Counts fade, so the latest rounds weigh most.

The tokens of a chain are in the order in which they are accepted, those of a tree ranked, likeliest
first. A smaller tree is the beginning of a larger one, so a round teaches all lengths up to its
own. A tree contains the chain of its likeliest tokens, so it teaches chains too; and the rates of
chains are the first guess for trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import accumulate

import numpy as np

from eaglechat.engine.auto.costs import Array
from eaglechat.engine.drafters.proposal import PROBABILITY_STEPS, Proposal, probability_step
from eaglechat.engine.sequences import common_prefix
from eaglechat.wire.records import LAST_TOKEN, N_DRAFT_MAX_LIMIT, Round, depths

_DISCOUNT = 0.97
"""A count is multiplied by this when the next one comes: about the last thirty decide."""
_WEIGHT = 3.0
"""A first guess counts as much as this many observations, so one unlucky draft does not outweigh
it."""
_SLOWLY = 0.995
"""Counts are multiplied by this for each round that drafted nothing, because the text moves on; so
are those of the long-run rate for each round that tested something."""
_FIRST = 0.6
"""First guess of the rate at which a draft's first token is accepted."""
_SIBLINGS = (0.22, 0.11, 0.07)
"""First guess for siblings: of the cases in which the likeliest token is wrong, the shares in which
the second, third and fourth likeliest are right."""


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

    def recall(self, sums: Sequence[float], tries: Sequence[float]) -> None:
        """Go on from these. Raises ValueError if they are not of so many places."""
        if not len(sums) == len(tries) == len(self.sums):
            raise ValueError(f"{len(sums)} sums and {len(tries)} tries of {len(self.sums)} places")
        self.sums, self.tries = [*sums], [*tries]

    def mean(self, place: int, guess: float) -> float:
        """The mean at a place, beginning with `guess`."""
        return (self.sums[place] + _WEIGHT * guess) / (self.tries[place] + _WEIGHT)


class AcceptanceByProbability(Counts):
    """Acceptance rates of a drafter by its own probability."""

    def __init__(self) -> None:
        super().__init__(PROBABILITY_STEPS)

    def note(self, probability: float, accepted: bool) -> None:
        """The target was asked about a token of this probability."""
        self.add(probability_step(probability), accepted)

    def by_probability(self) -> tuple[float, ...]:
        """P(accepted | all before it on the path were) for each step of the drafter's probability.
        A higher step never has a lower rate."""
        pools: list[tuple[float, float, int]] = []
        for place in range(PROBABILITY_STEPS):
            wins = self.sums[place] + _WEIGHT * (place + 0.5) / PROBABILITY_STEPS
            pool = (wins, self.tries[place] + _WEIGHT, 1)
            # Adjacent steps in the wrong order are pooled, so the one with fewer tries gives way.
            while pools and pools[-1][0] / pools[-1][1] > pool[0] / pool[1]:
                before = pools.pop()
                pool = (before[0] + pool[0], before[1] + pool[1], before[2] + pool[2])
            pools.append(pool)
        return tuple(wins / tries for wins, tries, steps in pools for _ in range(steps))


class _OfShape:
    """Acceptance of drafts of one shape. Arrays have one value for each place in a draft.

    `note` learns from a round of this shape that was to draft `n_wanted` tokens. `chances` are
    P(accepted), plus `deviations` standard errors; `depths` those of drafts that end at a place.
    """

    def __init__(self) -> None:
        self._accepted, self._kept = Counts(N_DRAFT_MAX_LIMIT), Counts(N_DRAFT_MAX_LIMIT)
        self.counts = [self._accepted, self._kept]
        """All that it has learnt."""

    def kept(self) -> Array:
        """P(drafted | all before it were): a drafter may end a draft early."""
        return np.array([self._kept.mean(place, 1.0) for place in range(N_DRAFT_MAX_LIMIT)])

    def age(self, rounds: int) -> None:
        """`rounds` rounds passed that tested nothing."""
        self._accepted.scale(_SLOWLY**rounds)

    def _note_kept(self, n_wanted: int, n_drafted: int) -> None:
        for place in range(min(n_drafted + 1, n_wanted)):
            self._kept.add(place, place < n_drafted)


class ChainAcceptance(_OfShape):
    """A place learns only when the target was asked about it: a rejected second token says nothing
    of the third."""

    def __init__(self) -> None:
        super().__init__()
        self._long_run = Counts(1, _SLOWLY)
        self._long_run.sums[0], self._long_run.tries[0] = _FIRST * _WEIGHT, _WEIGHT
        self.counts.append(self._long_run)

    def note(self, n_wanted: int, round_: Round) -> None:
        """A draft that ended early counts as rejected at the place where it ended, so the rates are
        those of drafts as they are made."""
        n_drafted = len(round_.drafted)
        self._note_accepted(round_.n_tested, round_.n_accepted)
        self._note_kept(n_wanted, n_drafted)
        if round_.n_accepted == n_drafted < n_wanted:
            self._accepted.add(n_drafted, 0.0)

    def note_tree(self, round_: Round) -> None:
        """Learn from the chain inside a tree."""
        likeliest: list[int] = []
        while after := round_.children(likeliest[-1] if likeliest else LAST_TOKEN):
            likeliest.append(after[0])
        n_accepted = common_prefix(likeliest, round_.path)
        self._note_accepted(min(round_.n_tested, n_accepted + 1, len(likeliest)), n_accepted)

    def _note_accepted(self, n_tested: int, n_accepted: int) -> None:
        self._long_run.add(0, n_accepted > 0)
        for place in range(n_tested):
            self._accepted.add(place, place < n_accepted)

    def rates(self, deviations: float = 0.0) -> list[float]:
        """P(accepted | all before it were) by place, plus `deviations` standard errors."""
        rates, rate = [], self._long_run.mean(0, _FIRST)
        for place, tries in enumerate(self._accepted.tries):
            # The first guess for a place is the rate of the place before it.
            rate = self._accepted.mean(place, rate)
            spread = (rate * (1.0 - rate) / (tries + _WEIGHT + 1.0)) ** 0.5
            rates.append(min(rate + deviations * spread, 1.0))
        return rates

    def chances(self, deviations: float = 0.0) -> Array:
        return np.array(self.rates(deviations)).cumprod()

    def depths(self) -> Array:
        return np.arange(1.0, N_DRAFT_MAX_LIMIT + 1.0)


class TreeAcceptance(_OfShape):
    """Begins with the chances that follow from the rates of chains."""

    def __init__(self, chain: ChainAcceptance) -> None:
        super().__init__()
        self._chain = chain
        self._depths = Counts(N_DRAFT_MAX_LIMIT)
        self.counts.append(self._depths)

    def note(self, n_wanted: int, round_: Round) -> None:
        path = round_.path
        for place in range(n_wanted):
            self._accepted.add(place, place in path)
        self._note_kept(n_wanted, len(round_.drafted))
        parents = [token.parent for token in round_.drafted]
        for place, depth in enumerate(accumulate(depths(parents), max)):
            self._depths.add(place, depth)
        self._chain.note_tree(round_)

    def chances(self, deviations: float = 0.0) -> Array:
        guesses, _ = _tree_of(tuple(self._chain.rates(deviations)))
        chances = np.array([self._accepted.mean(place, p) for place, p in enumerate(guesses)])
        # The standard error of the sum of chances up to here, since that sum is what trees are
        # compared by.
        tries = np.array(self._accepted.tries) + _WEIGHT + 1.0
        spread = deviations / np.sqrt(tries * np.maximum(np.cumsum(chances), 0.1))
        hoped: Array = np.minimum(chances * (1.0 + spread), 1.0)
        return hoped

    def depths(self) -> Array:
        _, guesses = _tree_of(tuple(self._chain.rates()))
        return np.array([self._depths.mean(place, depth) for place, depth in enumerate(guesses)])


def tested(round_: Round, proposal: Proposal) -> list[tuple[float, bool]]:
    """For each token that the target was asked about: how sure the drafter was of it, and whether
    it was accepted."""
    path = round_.path
    return [
        (proposal.guesses[index].sureness, index in path)
        for parent in [LAST_TOKEN, *path][: round_.n_tested]
        for index in round_.children(parent)
    ]


@lru_cache(maxsize=4)
def _tree_of(rates: tuple[float, ...]) -> tuple[list[float], list[int]]:
    """Grow the best tree, given how often the likeliest token is accepted at each depth (`rates`).

    Returns the chance of each token to be accepted, likeliest first, and the depth of the tree once
    that token is in it."""
    chances: list[float] = []
    depths: list[int] = []
    frontier: list[tuple[float, int]] = []
    chance, depth, deepest = 1.0, 0, 0
    while len(chances) < N_DRAFT_MAX_LIMIT:
        if depth < len(rates):
            rate = rates[depth]
            for share in (rate, *((1.0 - rate) * part for part in _SIBLINGS)):
                heappush(frontier, (-chance * share, depth + 1))
        negative, depth = heappop(frontier)
        chance, deepest = -negative, max(deepest, depth)
        chances.append(chance)
        depths.append(deepest)
    return chances, depths

"""What drafts of each shape yield: the chance that their k-th token is accepted.

A chain's tokens are accepted in their order. A tree's are ranked, the likeliest first, and a tree
of fewer tokens is the beginning of a larger one: each round teaches all sizes up to its own. As
every tree goes along its likeliest tokens, it teaches chains as well; and what is known of chains
is the first guess at trees.
"""

from __future__ import annotations

from functools import lru_cache
from heapq import heappop, heappush
from itertools import accumulate
from typing import Protocol

import numpy as np

from eaglechat.engine.auto.acceptance import WEIGHT, Counts
from eaglechat.engine.auto.costs import Array
from eaglechat.engine.auto.draft_plan import Observation
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT
from eaglechat.wire.trees import depths

_SLOWLY = 0.995
"""Weight that counts keep in the long run, and after a round that drafted nothing: the text moves
on."""
_FIRST = 0.6
"""The first guess at a draft's acceptance."""
_SIBLINGS = (0.22, 0.11, 0.07)
"""The first guess at siblings: the share of what the likeliest token misses that the next ones,
in their order, catch."""


class Yield(Protocol):
    """What drafts of a shape yield. All by the place of a token in a draft."""

    def chances(self, deviations: float = 0.0) -> Array:
        """P(accepted), or so many standard errors more."""

    def kept(self) -> Array:
        """P(drafted | those before it were): drafts end by themselves."""

    def depths(self) -> Array:
        """How deep a draft that ends there is."""

    def note(self, n_wanted: int, seen: Observation) -> None:
        """A round of this shape wanted so many tokens."""

    def age(self, rounds: int) -> None:
        """Rounds passed that tested nothing."""


class ChainYield:
    """Only positions that were reached learn: what the target made of the first two says nothing
    of a third that was never tested."""

    def __init__(self) -> None:
        self._accepted, self._kept = Counts(N_DRAFT_MAX_LIMIT), Counts(N_DRAFT_MAX_LIMIT)
        self._long_run = Counts(1, _SLOWLY)
        self._long_run.sums[0], self._long_run.tries[0] = _FIRST * WEIGHT, WEIGHT

    def note(self, n_wanted: int, seen: Observation) -> None:
        """A draft that stopped by itself counts as not accepted at the position it gave up, so
        that the rates are those of drafting as it is done."""
        n_drafted = len(seen.probabilities)
        self._note_accepted(seen.n_tested, len(seen.path))
        for place in range(min(n_drafted + 1, n_wanted)):
            self._kept.add(place, place < n_drafted)
        if len(seen.path) == n_drafted < n_wanted:
            self._accepted.add(n_drafted, 0.0)

    def note_tree(self, seen: Observation) -> None:
        """What a tree shows of the chain in it."""
        likeliest = seen.likeliest_path
        n_accepted = 0
        while n_accepted < min(len(likeliest), len(seen.path)):
            if likeliest[n_accepted] != seen.path[n_accepted]:
                break
            n_accepted += 1
        self._note_accepted(min(seen.n_tested, n_accepted + 1, len(likeliest)), n_accepted)

    def _note_accepted(self, n_tested: int, n_accepted: int) -> None:
        self._long_run.add(0, n_accepted > 0)
        for place in range(n_tested):
            self._accepted.add(place, place < n_accepted)

    def age(self, rounds: int) -> None:
        self._accepted.scale(_SLOWLY**rounds)

    def rates(self, deviations: float = 0.0) -> list[float]:
        """P(accepted | reached) by position, or so many standard errors more."""
        rates, rate = [], self._long_run.mean(0, _FIRST)
        for place, tries in enumerate(self._accepted.tries):
            # A position hardly reached is taken to be like the one before it.
            rate = self._accepted.mean(place, rate)
            spread = (rate * (1.0 - rate) / (tries + WEIGHT + 1.0)) ** 0.5
            rates.append(min(rate + deviations * spread, 1.0))
        return rates

    def chances(self, deviations: float = 0.0) -> Array:
        return np.array(self.rates(deviations)).cumprod()

    def kept(self) -> Array:
        return np.array([self._kept.mean(place, 1.0) for place in range(N_DRAFT_MAX_LIMIT)])

    def depths(self) -> Array:
        return np.arange(1.0, N_DRAFT_MAX_LIMIT + 1.0)


class TreeYield:
    """Begins with the tree that goes with a chain's rates."""

    def __init__(self, chain: ChainYield) -> None:
        self._chain = chain
        self._accepted, self._kept = Counts(N_DRAFT_MAX_LIMIT), Counts(N_DRAFT_MAX_LIMIT)
        self._depths = Counts(N_DRAFT_MAX_LIMIT)

    def note(self, n_wanted: int, seen: Observation) -> None:
        n_drafted = len(seen.probabilities)
        for place in range(n_wanted):
            self._accepted.add(place, place in seen.path)
        for place in range(min(n_drafted + 1, n_wanted)):
            self._kept.add(place, place < n_drafted)
        for place, depth in enumerate(accumulate(depths(seen.parents), max)):
            self._depths.add(place, depth)
        self._chain.note_tree(seen)

    def age(self, rounds: int) -> None:
        self._accepted.scale(_SLOWLY**rounds)

    def chances(self, deviations: float = 0.0) -> Array:
        guesses, _ = _tree_of(tuple(self._chain.rates(deviations)))
        chances = np.array([self._accepted.mean(place, p) for place, p in enumerate(guesses)])
        # Of a sum, as trees are judged by theirs.
        tries = np.array(self._accepted.tries) + WEIGHT + 1.0
        spread = deviations / np.sqrt(tries * np.maximum(np.cumsum(chances), 0.1))
        hoped: Array = np.minimum(chances * (1.0 + spread), 1.0)
        return hoped

    def kept(self) -> Array:
        return np.array([self._kept.mean(place, 1.0) for place in range(N_DRAFT_MAX_LIMIT)])

    def depths(self) -> Array:
        _, guesses = _tree_of(tuple(self._chain.rates()))
        return np.array([self._depths.mean(place, depth) for place, depth in enumerate(guesses)])


@lru_cache(maxsize=4)
def _tree_of(rates: tuple[float, ...]) -> tuple[list[float], list[int]]:
    """The likeliest tokens of a draft whose likeliest one is accepted at these rates by depth:
    their chances, likeliest first, and the depth of the tree that ends there."""
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

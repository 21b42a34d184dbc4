"""What a drafter proposes, and within which limits."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import NamedTuple

from eaglechat.wire.records import LAST_TOKEN, children, depths

DRAFT_TEMPERATURE = 0.7
"""A draft draws at this share of the target's temperature, where the two agree most often: a draft
is less sure of its likeliest token than the target is."""
PROBABILITY_STEPS = 10
"""Steps of a drafter's probability by which acceptance is counted. Finer steps would be observed
too rarely."""


def probability_step(probability: float) -> int:
    return min(int(probability * PROBABILITY_STEPS), PROBABILITY_STEPS - 1)


class Guess(NamedTuple):
    """A token that may stand at a place."""

    id: int
    probability: float
    """The drafter's own, given the tokens before it."""
    sureness: float
    """What acceptance is learnt by. Of a drawn token, the probability of the likeliest one in its
    place: what is drawn is accepted about as often whatever it is. Else its own."""
    shares: Mapping[int, float] | None = None
    """The probabilities that it was drawn with, by token; None for one that is not drawn, which the
    target's own draw has to match."""


class Draws(NamedTuple):
    random: Random
    temperature: float
    """The target's, above 0."""

    def guess(self, likeliest: Sequence[tuple[int, float]]) -> Guess:
        """One of the likeliest tokens of a place, the likeliest of which comes first."""
        power = 1.0 / (DRAFT_TEMPERATURE * self.temperature)
        most = max(share for _, share in likeliest)
        odds = [(share / most) ** power for _, share in likeliest]
        total = sum(odds)
        shares = {id: one / total for (id, _), one in zip(likeliest, odds, strict=True)}
        ((id, probability),) = self.random.choices(likeliest, odds)
        return Guess(id, probability, likeliest[0][1], shares)


Drafting = Generator[Sequence[tuple[int, float]], int, None]
"""Gives a place's likeliest tokens with their probabilities, the likeliest first, and is sent the
one that the next place follows."""


@dataclass(frozen=True)
class Proposal:
    """A tree of tokens: parents come before their children, likelier siblings before the others.

    A chain is a tree without siblings; an empty proposal proposes nothing.
    """

    guesses: Sequence[Guess] = ()
    parents: Sequence[int] = ()
    """For each token, the index of the one it follows; LAST_TOKEN for the first of a path."""
    drafter: str = ""
    """Name of the drafter, as the records of a round have it."""

    @classmethod
    def chain(cls, guesses: Sequence[Guess], drafter: str) -> Proposal:
        return cls(guesses, range(LAST_TOKEN, LAST_TOKEN + len(guesses)), drafter)

    @cached_property
    def ids(self) -> list[int]:
        return [guess.id for guess in self.guesses]

    @property
    def probabilities(self) -> list[float]:
        return [guess.probability for guess in self.guesses]

    def __len__(self) -> int:
        return len(self.guesses)

    def first(self, n: int) -> Proposal:
        return Proposal(self.guesses[:n], self.parents[:n], self.drafter)

    @property
    def is_chain(self) -> bool:
        return all(parent == index - 1 for index, parent in enumerate(self.parents))

    @property
    def depths(self) -> list[int]:
        """For each token, the number of tokens on the path from the last token to it."""
        return depths(self.parents)

    def leaves(self) -> list[int]:
        """Indices of the tokens without children; each ends a path."""
        return [index for index in range(len(self)) if index not in self.parents]

    def path(self, index: int) -> list[int]:
        """Indices of the tokens from the first one down to the one at `index`."""
        path = []
        while index != LAST_TOKEN:
            path.append(index)
            index = self.parents[index]
        return path[::-1]

    def children(self, parent: int) -> list[int]:
        return children(self.parents, parent)


@dataclass(frozen=True)
class Limits:
    """How long a proposal may be, and how likely its tokens must be."""

    n_max: int
    n_min: int = 0
    """A shorter proposal is none."""
    p_min: float = 0.0
    """A proposal ends before the first token to which the drafter gives less than this."""
    worth: Sequence[float] = ()
    """For the token at each index, the lowest chance of acceptance that pays for verifying it;
    empty if all are verified."""
    by_probability: Sequence[float] = ()
    """The acceptance rate for each step of how sure the drafter is."""
    is_tree: bool = False
    """Whether tokens may have siblings, if the drafter can propose trees."""
    draws: Draws | None = None
    """What a chain is drawn with; None to propose the likeliest tokens. A tree has these anyway."""

    def kept(self, proposal: Proposal) -> Proposal:
        """A proposal, if it is long enough."""
        return proposal if len(proposal) >= self.n_min else Proposal()

    def pays(self, sureness: Sequence[float], n_others: int) -> bool:
        """Whether verifying one more token pays: the last one of a path of which the drafter is so
        sure, beside `n_others` tokens."""
        if not self.worth:
            return True
        survival = 1.0
        for one in sureness:
            survival *= self.by_probability[probability_step(one)]
        return survival >= self.worth[n_others]

    def chain(self, drafting: Drafting, drafter: str) -> Proposal:
        """As many tokens as the limits keep. No further place is asked for than the first whose
        token is not kept.

        Whether a place has a token is decided before one is drawn: to leave out a drawn token for
        what it is would change the distribution of replies.
        """
        kept: list[Guess] = []
        path: list[float] = []
        with suppress(StopIteration):
            likeliest = next(drafting)
            while True:
                id, share = likeliest[0]
                path.append(share)
                if share < self.p_min or not self.pays(path, len(kept)):
                    break
                guess = self.draws.guess(likeliest) if self.draws else Guess(id, share, share)
                kept.append(guess)
                if len(kept) == self.n_max:
                    break
                likeliest = drafting.send(guess.id)
        return Proposal.chain(kept, drafter)

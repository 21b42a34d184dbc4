"""The controller's plan of a round, and what it is told of the round afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eaglechat.wire.protocol import Shape
from eaglechat.wire.records import LAST_TOKEN, AutoDraft, children

CHAIN, TREE = 0, 1
PROBABILITY_STEPS = 10
"""Steps of a drafter's probability by which acceptance is counted. Finer steps would be observed
too rarely."""


def probability_step(probability: float) -> int:
    return min(int(probability * PROBABILITY_STEPS), PROBABILITY_STEPS - 1)


def shapes_open(wanted: Shape, grows_trees: bool) -> tuple[int, ...]:
    """The shapes that drafts may have under the setting `wanted`."""
    if wanted == "chain" or not grows_trees:
        return (CHAIN,)
    return (TREE,) if wanted == "tree" else (CHAIN, TREE)


class Arm(NamedTuple):
    """One of the things a round may draft: `n` tokens in a shape."""

    shape: int
    n: int


@dataclass(frozen=True)
class DraftPlan:
    """At most `n` tokens in a shape, and which of them are worth verifying."""

    n: int
    shape: int = CHAIN
    worth: tuple[float, ...] = ()
    """For the token at each index of the draft, the lowest chance of acceptance that pays for
    verifying it; empty if all are verified."""
    by_probability: tuple[float, ...] = ()
    """The acceptance rate for each step of the draft's own probability."""
    state: AutoDraft | None = None
    """What the choice rests on, for the screen; None if the length was not chosen."""
    is_trial: bool = False
    is_looked_up: bool = False
    """Whether the tokens are those that n-grams found."""

    @property
    def arm(self) -> Arm:
        return Arm(self.shape, self.n)

    def keeps(self, probabilities: Sequence[float], n_others: int) -> bool:
        """Whether verifying one more token pays: the last one of a path with these probabilities,
        beside `n_others` tokens. As `Limits.is_worth`."""
        survival = 1.0
        for probability in probabilities:
            survival *= self.by_probability[probability_step(probability)]
        return survival >= self.worth[n_others]


@dataclass(frozen=True)
class Allowed:
    """What a round may draft: `n_min` to `n_most` tokens, or none."""

    n_most: int
    """Limited by the context, the reply and the drafter."""
    n_min: int = 0
    shapes: tuple[int, ...] = (CHAIN,)
    plain: bool = True
    """Whether the round may also draft nothing. If not, there is no ledger against plain
    decoding."""

    @property
    def arms(self) -> list[Arm]:
        """Shortest first. Chain and tree of one token are the same."""
        plain = [Arm(CHAIN, 0)] if self.plain else []
        lengths = range(max(self.n_min, 1), self.n_most + 1)
        return plain + [
            Arm(shape, n) for n in lengths for shape in self.shapes[: None if n > 1 else 1]
        ]

    def includes(self, plan: DraftPlan) -> bool:
        """Whether a plan that was made for an earlier round is still allowed."""
        if (plan.state is not None) is not self.plain:
            return False
        fits = max(self.n_min, 1) <= plan.n <= self.n_most and plan.shape in self.shapes
        return fits or (plan.n == 0 and self.plain)


@dataclass(frozen=True)
class Observation:
    """What a planned round did. Times in milliseconds."""

    n_past: int
    """Tokens in the KV cache before the round."""
    n_waiting: int
    """Rows that the draft model had not taken in before the round."""
    probabilities: tuple[float, ...]
    """The drafter's probability of each token it proposed."""
    parents: tuple[int, ...]
    """For each token, the index of the one it follows; LAST_TOKEN for the first of a path."""
    path: tuple[int, ...]
    """Indices of the accepted tokens."""
    n_tested: int
    n_tokens: int
    """Tokens that the target wrote."""
    draft_ms: float
    verify_ms: float
    """All of the round's time but `draft_ms`."""
    found: tuple[float, ...] = ()
    """The probability of each token that n-grams found, whether or not it was proposed."""
    n_right: int = 0
    """How many of these the target then wrote."""

    @property
    def likeliest_path(self) -> list[int]:
        """Indices of the chain inside the tree: the likeliest token at each depth."""
        path: list[int] = []
        while after := children(self.parents, path[-1] if path else LAST_TOKEN):
            path.append(after[0])
        return path

    @property
    def tested(self) -> list[tuple[float, bool]]:
        """For each token that the target was asked about: its probability, and whether it was
        accepted."""
        places = [LAST_TOKEN, *self.path][: self.n_tested]
        return [
            (self.probabilities[index], index in self.path)
            for parent in places
            for index in children(self.parents, parent)
        ]

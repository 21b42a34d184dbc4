"""What auto hands to a round, and what it gets back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eaglechat.engine.auto.acceptance import accept_rate
from eaglechat.wire.protocol import Shape
from eaglechat.wire.records import AutoDraft
from eaglechat.wire.trees import LAST_TOKEN, children

CHAIN, TREE = 0, 1


def shapes_open(wanted: Shape, grows_trees: bool) -> tuple[int, ...]:
    """The shapes that drafts may have where this is set."""
    if wanted == "chain" or not grows_trees:
        return (CHAIN,)
    return (TREE,) if wanted == "tree" else (CHAIN, TREE)


class Arm(NamedTuple):
    """What a round may draft: so many tokens in this shape."""

    shape: int
    n: int


@dataclass(frozen=True)
class DraftPlan:
    """How a round drafts: at most `n` tokens, and which of them are worth verifying.

    `worth[j]` is the least probability of being accepted that pays for the place of the draft's
    j-th token in the batch; `by_probability` turns the draft's own probabilities into rates of
    acceptance.
    """

    n: int
    shape: int = CHAIN
    worth: tuple[float, ...] = ()
    by_probability: tuple[float, ...] = ()
    state: AutoDraft | None = None
    """What the choice rests on, for the screen; None where the length was not chosen."""
    is_trial: bool = False
    is_looked_up: bool = False
    """Whether the tokens are those that n-grams found."""

    @property
    def arm(self) -> Arm:
        return Arm(self.shape, self.n)

    def keeps(self, probabilities: Sequence[float], n_others: int) -> bool:
        """Whether the last token of a path with these probabilities should be verified, beside so
        many others."""
        survival = 1.0
        for probability in probabilities:
            survival *= accept_rate(self.by_probability, probability)
        return survival >= self.worth[n_others]


@dataclass(frozen=True)
class Choice:
    """What is open to choice: drafts of up to `n_most` tokens, what context and reply have room
    for, and no shorter than `n_min`."""

    n_most: int
    n_min: int = 0
    shapes: tuple[int, ...] = (CHAIN,)
    plain: bool = True
    """Whether none is, too; where not, nothing is held against plain decoding."""

    @property
    def arms(self) -> list[Arm]:
        """Shortest first; a single token has no shape."""
        plain = [Arm(CHAIN, 0)] if self.plain else []
        lengths = range(max(self.n_min, 1), self.n_most + 1)
        return plain + [
            Arm(shape, n) for n in lengths for shape in self.shapes[: None if n > 1 else 1]
        ]

    def allows(self, plan: DraftPlan) -> bool:
        """Whether a plan that was made before is open now."""
        if (plan.state is not None) is not self.plain:
            return False
        fits = max(self.n_min, 1) <= plan.n <= self.n_most and plan.shape in self.shapes
        return fits or (plan.n == 0 and self.plain)


PLAIN = DraftPlan(0)


@dataclass(frozen=True)
class Observation:
    """What a planned round did. Times in milliseconds."""

    n_past: int
    """Tokens in the KV cache before the round."""
    n_waiting: int
    """Rows of features the draft had not taken in before the round."""
    probabilities: tuple[float, ...]
    """The draft's own probability of each token it drafted."""
    parents: tuple[int, ...]
    """The index of the token that each of them follows, -1 for the last one before the round."""
    path: tuple[int, ...]
    """Indices of the accepted ones."""
    n_tested: int
    n_tokens: int
    draft_ms: float
    verify_ms: float
    """All of the round but drafting."""
    found: tuple[float, ...] = ()
    """The probability of each token that n-grams found, whether they were proposed or not."""
    n_right: int = 0
    """How many of these the target went on to choose, as far as it wrote."""

    @property
    def likeliest_path(self) -> list[int]:
        """Indices of the chain in the draft: the likeliest token at each depth."""
        path: list[int] = []
        while after := children(self.parents, path[-1] if path else LAST_TOKEN):
            path.append(after[0])
        return path

    @property
    def tested(self) -> list[tuple[float, bool]]:
        """The probability of each token that the target was asked about, and whether it took it."""
        places = [LAST_TOKEN, *self.path][: self.n_tested]
        return [
            (self.probabilities[index], index in self.path)
            for parent in places
            for index in children(self.parents, parent)
        ]

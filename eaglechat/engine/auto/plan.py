"""What a round is to draft, and what it may draft."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from eaglechat.engine.drafters.proposal import Limits, Proposal
from eaglechat.engine.noise import Noise
from eaglechat.wire.protocol import Shape, Speculation
from eaglechat.wire.records import AutoDraft, Round

CHAIN, TREE = 0, 1
_NOTHING = Proposal()


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
class Plan:
    """At most `n` tokens in a shape, and which of them are worth verifying."""

    n: int
    shape: int = CHAIN
    taken: Proposal = _NOTHING
    """Tokens that n-grams found, which are verified instead of a draft's."""
    worth: tuple[float, ...] = ()
    by_probability: tuple[float, ...] = ()
    """Both as in `Limits`."""
    is_chosen: bool = False
    """Whether the controller chose it, and learns from the round."""
    state: AutoDraft | None = None
    """What the choice rests on, for the screen; None if the length was not chosen."""
    is_trial: bool = False
    is_plain_check: bool = False
    """Whether nothing is drafted to measure plain decoding."""

    @property
    def arm(self) -> Arm:
        return Arm(self.shape, self.n)

    def limits(self, want: Speculation, noise: Noise | None = None) -> Limits:
        """Bounds of what the draft model proposes, if the target draws with this noise."""
        return Limits(
            self.n,
            want.n_min,
            want.p_min,
            self.worth,
            self.by_probability,
            is_tree=self.shape == TREE,
            noise=noise,
        )


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

    def includes(self, plan: Plan) -> bool:
        """Whether a plan that was made for an earlier round is still allowed."""
        return (plan.state is not None) is self.plain and plan.arm in self.arms


@dataclass(frozen=True)
class Seen:
    """What came of a plan."""

    plan: Plan
    round: Round
    proposal: Proposal
    """What was verified."""
    found: Proposal
    """What n-grams had found, taken or not."""
    n_waiting: int
    """The rows that waited for the draft model before the round."""
    draft_ms: float
    """Of the round's time, what went by until its proposal was made."""

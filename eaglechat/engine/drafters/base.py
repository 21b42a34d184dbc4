"""What the speculative loop asks of a drafter.

A drafter proposes tokens that may follow the last one; the target decides. A round is `propose`,
the target's decode of [last token, *proposal], `see` of that batch, and `accept` of what the target
chose. Before a reply, `resume` says what of the conversation the target has to decode again.

A `Drafter` needs nothing but tokens; n-grams are one. A `DraftModel` also reads hidden states of
the target, and keeps a KV cache of its own: EAGLE-3, MTP heads and DFlash do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.gguf.header import GGUFHeader
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.records import LAST_TOKEN, children, depths

MOST_WAITING = 32
"""Under an automatic length, a draft model takes in its waiting rows once there are more than this.
A row costs it about a hundredth of a plain token's time, so a trial of drafting can pay for 32."""


class ProposedToken(NamedTuple):
    """A token of a proposal."""

    id: int
    probability: float
    """The drafter's own, given the tokens before it."""
    parent: int
    """Index of the token it follows; LAST_TOKEN for the first of a chain."""
    drafter: str
    """Name of the drafter that proposed it."""


class Proposal(tuple[ProposedToken, ...]):
    """A tree of tokens: parents come before their children, likelier siblings before the others.

    A chain is a tree without siblings; an empty proposal proposes nothing.
    """

    __slots__ = ()

    @classmethod
    def chain(cls, ids: Sequence[int], probabilities: Sequence[float], drafter: str) -> Proposal:
        pairs = zip(ids, probabilities, strict=True)
        return cls(
            ProposedToken(id, probability, index - 1, drafter)
            for index, (id, probability) in enumerate(pairs)
        )

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self]

    @property
    def probabilities(self) -> list[float]:
        return [token.probability for token in self]

    @property
    def parents(self) -> list[int]:
        return [token.parent for token in self]

    @property
    def is_chain(self) -> bool:
        return all(token.parent == index - 1 for index, token in enumerate(self))

    @property
    def depths(self) -> list[int]:
        """For each token, the number of tokens on the path from the last token to it."""
        return depths(self.parents)

    @property
    def depth(self) -> int:
        """Tokens on the longest path."""
        return max(self.depths, default=0)

    def leaves(self) -> list[int]:
        """Indices of the tokens without children; each ends a path."""
        parents = set(self.parents)
        return [index for index in range(len(self)) if index not in parents]

    def path(self, index: int) -> list[int]:
        """Indices of the tokens from the first one down to the one at `index`."""
        path = []
        while index != LAST_TOKEN:
            path.append(index)
            index = self[index].parent
        return path[::-1]

    def children(self, parent: int) -> list[int]:
        """Indices of the tokens that may follow the one at `parent`."""
        return children(self.parents, parent)


@dataclass(frozen=True)
class Limits:
    """How long a proposal may be, and how likely its tokens must be."""

    n_max: int
    n_min: int = 0
    """The loop drops a shorter proposal; a drafter need not look at this."""
    p_min: float = 0.0
    """A proposal ends before the first token to which the drafter gives less than this."""
    is_worth: Callable[[Sequence[float], int], bool] | None = None
    """Whether verifying one more token pays. Arguments: the drafter's probabilities along the path
    that ends with this token, and the number of tokens proposed beside it."""
    is_tree: bool = False
    """Whether tokens may have siblings, if the drafter can propose trees."""

    def keep(self, probabilities: Sequence[float]) -> bool:
        """Whether a chain with these probabilities keeps its last token."""
        return probabilities[-1] >= self.p_min and self.pays(probabilities, len(probabilities) - 1)

    def pays(self, probabilities: Sequence[float], n_others: int) -> bool:
        """Whether verifying the last token of a path pays; arguments as for `is_worth`."""
        return self.is_worth is None or self.is_worth(probabilities, n_others)


@dataclass(frozen=True)
class Opening:
    """What a drafter that reads hidden states is made of."""

    owned: ExitStack
    """Closes what is made, in the reverse order."""
    target: Context
    model: Model
    """The draft; the target's model if the drafter is in its file."""
    header: GGUFHeader
    """The header of that model's file."""
    options: LoadOptions
    n_threads: int


class Spent(NamedTuple):
    """Milliseconds that a drafter has taken since it was made."""

    process_ms: float = 0.0
    """Reading what the target computed: for EAGLE-3, copying features and running the encoder."""
    draft_ms: float = 0.0
    """Everything else."""


def shifted(position: int, start: int, end: int) -> int:
    """Where a position is after those from `start` up to `end` have left."""
    return min(position, max(start, position - (end - start)))


class Drafter(Protocol):
    """Proposes tokens for the one sequence of a target.

    Whatever it raises never ends a reply: the loop goes on without it, and asks it for nothing
    but `resume` when a later reply tries it again.
    """

    name: str
    """As the records of a round have it."""

    @property
    def known(self) -> int:
        """Positions from 0 on that it has seen. `propose` needs all the target holds."""

    @property
    def spent(self) -> Spent: ...

    def resume(self, tokens: Sequence[int], *, to_draft: bool) -> int:
        """Go on after `tokens`, which the target holds, and forget what was behind them.

        Returns how many of them the target can keep: it decodes the others again, for the drafter
        to see them. `to_draft` says that proposals follow soon, so a drafter may ask to see more.
        """

    def shift(self, start: int, end: int) -> None:
        """Between two rounds, positions `start` to `end` - 1 have left the target's KV cache, and
        those from `end` on have moved down to `start`."""

    def see(self, batch: Batch) -> None:
        """Take note of a batch that the target has just decoded."""

    def propose(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        """What may follow token `id_last`, which stands at position `n_past`."""

    def accept(self, path: Sequence[int]) -> None:
        """The target chose the tokens at these indices of the proposal in the batch just seen,
        whoever made it; each is a child of the one before. Forget the others."""


class DraftModel(Drafter, Protocol):
    """A drafter that reads hidden states of the target and has a KV cache of its own.

    What it sees may wait as rows of hidden states, at no cost, until it drafts.
    """

    @property
    def longest(self) -> int:
        """The most tokens it can propose now; 0 while it has seen too little of the text before
        the next token to guess it."""

    @property
    def grows_trees(self) -> bool:
        """Whether it can propose trees that the target's KV cache can hold."""

    @property
    def in_one_pass(self) -> bool:
        """Whether one decode drafts all tokens, so that ending a draft early saves nothing."""

    @property
    def waiting(self) -> int:
        """Rows it has seen but not taken in, for which the next proposal pays."""

    def take_in(self) -> None:
        """Take in the waiting rows now."""

    def set_export(self, enabled: bool) -> None:
        """Have the target export hidden states in every decode, which slows it a little, or stop.
        What the target decodes without them, this drafter has not seen."""

    def mark(self) -> object:
        """What `restore` needs, beside what this drafter holds, to go on from here later."""

    def restore(self, length: int, mark: object) -> None:
        """Get ready to go on after the first `length` positions, where `mark` was made. All of them
        are still known. `resume` follows."""

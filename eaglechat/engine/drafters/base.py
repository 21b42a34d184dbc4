"""What the loop needs of a drafter, and nothing else.

A drafter proposes tokens that may follow the last one; the target decides. One reply is, round
after round: `propose`, the target's decode of [last token, *proposal], `see` of that batch,
`accept` of what the target chose. Before it `resume` says what need not be read again, and every
decode of the target is followed by `see`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from eaglechat.engine.llama.objects import Batch
from eaglechat.wire.trees import LAST_TOKEN, children, depths

MOST_CAUGHT_UP = 32
"""Positions: a drafter that knows fewer of the latest guesses nothing, and no more than these wait
for it between two rounds of an automatic length. Taking in a row costs a hundredth of a plain
token: so many are a price that a trial of drafting can bear."""


class ProposedToken(NamedTuple):
    """A token of a proposal."""

    id: int
    probability: float
    """The drafter's own, given the tokens before it."""
    parent: int
    """Index of the token it follows; LAST_TOKEN for the first of a chain."""
    drafter: str
    """Name of the drafter it is from."""


class Proposal(tuple[ProposedToken, ...]):
    """A tree of tokens, parents before their children, the likeliest of siblings first. A chain
    is a tree without siblings; nothing proposed is an empty one."""

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

    def first(self, count: int) -> Proposal:
        """So many of its tokens, the first."""
        return Proposal(self[:count])

    @property
    def is_chain(self) -> bool:
        return all(token.parent == index - 1 for index, token in enumerate(self))

    @property
    def depth(self) -> int:
        """Tokens of its longest path."""
        return max(self.depths, default=0)

    @property
    def depths(self) -> list[int]:
        """Of each token: how many there are from the first of its path to it."""
        return depths(self.parents)

    def leaves(self) -> list[int]:
        """Indices of the tokens that none follows; each ends a path."""
        parents = set(self.parents)
        return [index for index in range(len(self)) if index not in parents]

    def path(self, index: int) -> list[int]:
        """Indices from the first token to the one at `index`."""
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
    """How far a draft may go. Tokens, and the drafter's probabilities of them."""

    n_max: int
    n_min: int = 0
    """A draft that is shorter is thrown away."""
    p_min: float = 0.0
    """A draft ends before the first token that is less likely."""
    is_worth: Callable[[Sequence[float], int], bool] | None = None
    """Asked with the probabilities from the first token to the newest, and how many tokens there
    are beside the newest: whether verifying the newest pays."""
    is_tree: bool = False
    """Whether tokens may have siblings, where the drafter can do that."""
    n_lookup: int = 0
    """Most tokens to look up ahead of drafting, at no cost; 0: none."""
    taken: Callable[[Proposal], int] = len
    """How many of those looked up to propose; 0 has the draft tried."""

    def keep(self, probabilities: Sequence[float]) -> bool:
        """Whether a draft that has come to these tokens keeps the newest of them; if not, it ends
        before it."""
        return probabilities[-1] >= self.p_min and self.pays(probabilities, len(probabilities) - 1)

    def pays(self, probabilities: Sequence[float], n_others: int) -> bool:
        """Whether the last token of a path with these probabilities is worth verifying beside so
        many others."""
        return self.is_worth is None or self.is_worth(probabilities, n_others)

    def suffices(self, n_tokens: int) -> bool:
        """Whether a draft of this length is worth proposing at all."""
        return n_tokens >= self.n_min


NO_DRAFT = Limits(0)


class Spent(NamedTuple):
    """Milliseconds a drafter has taken since it was made."""

    process_ms: float
    """Taking over what the target computed."""
    draft_ms: float
    """Everything else: drafting, and learning what was accepted."""

    def since(self, before: Spent) -> Spent:
        return Spent(self.process_ms - before.process_ms, self.draft_ms - before.draft_ms)


class Drafter(Protocol):
    """Proposes tokens for one sequence of a target.

    What is raised here never ends a reply; the loop then goes on with the `fallback`, and asks this
    one for nothing but `resume` in a later reply.
    """

    name: str
    """As it stands in the records."""

    @property
    def fallback(self) -> Drafter | None:
        """What proposes where this one has failed, and has seen all that it has seen."""

    @property
    def known(self) -> int:
        """Positions from 0 on that it has seen; to propose, it must have seen all."""

    @property
    def waiting(self) -> int:
        """How many of them it has yet to take in, which the next proposal pays for."""

    @property
    def is_blind(self) -> bool:
        """Whether it has left out so much that it can guess nothing from the rest."""

    @property
    def grows_trees(self) -> bool:
        """Whether what it proposes may have siblings, which the target's cache can hold too."""

    @property
    def spent(self) -> Spent: ...

    def listen(self, enabled: bool) -> None:
        """Have the target's decodes bring what `see` reads, or not, which costs a little in each.
        What is decoded without it, the drafter has not seen."""

    def resume(self, tokens: Sequence[int], *, to_draft: bool) -> int:
        """Go on after these tokens, the beginning of those that the target holds, and forget the
        rest; the number of them after which the target must decode again what follows.

        With `to_draft` it is about to propose, and may ask for more again in order to see it.
        """

    def mark(self) -> object:
        """What `restore` needs beside what the drafter holds, to go on here with any token; not
        None."""

    def restore(self, length: int, mark: object) -> None:
        """Take `mark` up again, made where `length` positions were known that are known still;
        `resume` follows."""

    def shift(self, start: int, end: int) -> None:
        """The positions from `start` up to `end` have left the target, those from `end` on have
        moved to `start`; between two rounds."""

    def see(self, batch: Batch) -> None:
        """Take note of a batch that the target has just decoded."""

    def take_in(self) -> None:
        """Take in what waits, ahead of a proposal."""

    def propose(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        """What may follow `id_last`, which stands at position `n_past`."""

    def accept(self, path: Sequence[int]) -> None:
        """The target chose these of the tokens verified in the batch just seen, each the child of
        the one before: their indices in the proposal, whoever made it. The others are forgotten."""

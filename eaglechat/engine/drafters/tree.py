"""A dynamic tree of draft tokens, as EAGLE-2 (arXiv 2406.16858) grows it.

The chance that the target accepts a token is estimated as the product of the draft's probabilities
along its path, which above temperature 0 are those with the target's noise. Level by level, those
tokens of the level that are among the `n` likeliest so far are decoded in one batch, which gives
their children. The `n` likeliest of all levels are the tree. A level costs one decode of the draft,
as a step of a chain does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from eaglechat.engine.drafters.base import decode
from eaglechat.engine.drafters.likeliest import Likeliest
from eaglechat.engine.drafters.proposal import Guess, Limits, Proposal
from eaglechat.engine.llama.bindings import Floats
from eaglechat.engine.llama.branches import TRUNK, Branches
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.wire.records import LAST_TOKEN


@dataclass(eq=False)
class Node:
    """A token that may be drafted."""

    guess: Guess
    path: tuple[float, ...]
    """How sure the draft is of each token on the path, this one last."""
    chance: float
    """Their product."""
    parent: Node | None
    state: Floats
    """The draft's state [n_embd] behind the parent, which it reads together with this token."""
    branch: int | None = None
    """The draft's sequence that holds this token, once it is decoded."""


class TreeGrower:
    """Grows trees with a draft's decoder."""

    def __init__(
        self,
        draft: Context,
        branches: Branches,
        batch: Batch,
        likeliest: Likeliest,
        of_states: Callable[[Floats], Floats],
        *,
        name: str,
    ) -> None:
        """`of_states` makes of the draft's states what it reads when they are fed back."""
        self._draft, self._branches, self._batch = draft, branches, batch
        self._likeliest, self._of_states, self._name = likeliest, of_states, name

    def grow(self, limits: Limits, n_past: int, row: int) -> Proposal:
        """The likeliest tokens behind output row `row` of the batch just decoded, likeliest first,
        so parents come before their children. Before the call the draft holds `n_past` positions,
        after it also parts of the tree. Raises ProcessError."""
        self._free = list(range(1, self._branches.most))
        self._room = self._draft.n_ctx - n_past
        state = self._of_states(self._draft.state(row))[0].copy()
        frontier = self._children(None, row, state, limits)
        nodes = _likeliest(frontier, limits)
        depth = 0
        while going_on := self._placed([n for n in frontier if n in nodes], nodes, n_past, limits):
            self._batch.clear()
            states = np.stack([node.state for node in going_on])
            for place, node in enumerate(going_on):
                assert node.branch is not None
                self._batch.add_tokens(
                    [node.guess.id],
                    n_past + depth,
                    node.branch,
                    output=True,
                    states=states[place : place + 1],
                )
            decode(self._draft, self._batch)
            states = self._of_states(self._draft.states(len(going_on))).copy()
            frontier = [
                child
                for place, node in enumerate(going_on)
                for child in self._children(node, place, states[place], limits)
            ]
            nodes = _likeliest([*nodes, *frontier], limits)
            depth += 1
        places = {id(node): place for place, node in enumerate(nodes)}
        return Proposal(
            [node.guess for node in nodes],
            [LAST_TOKEN if node.parent is None else places[id(node.parent)] for node in nodes],
            self._name,
        )

    def _children(self, node: Node | None, row: int, state: Floats, limits: Limits) -> list[Node]:
        path, chance = (node.path, node.chance) if node else ((), 1.0)
        some = limits.guesses(self._likeliest.top_k(self._draft.logits(row), row), len(path))
        return [
            Node(guess, (*path, guess.sureness), chance * guess.sureness, node, state)
            for guess in some[: limits.n_max]
            if guess.sureness >= limits.p_min and guess.sureness > 0.0
        ]

    def _placed(
        self, frontier: Sequence[Node], nodes: Sequence[Node], n_past: int, limits: Limits
    ) -> list[Node]:
        """The tokens of the frontier whose children may be among the likeliest. Each gets a
        sequence: a parent's first child that of its parent, the others a free one."""
        least = nodes[-1].chance if len(nodes) >= limits.n_max else 0.0
        taken: set[int] = set()
        placed = []
        for node in frontier:
            if node.chance <= least or self._room == 0:
                continue
            parent = TRUNK if node.parent is None else node.parent.branch
            assert parent is not None
            if parent not in taken:
                node.branch = parent
            elif self._free:
                node.branch = self._free.pop(0)
                self._branches.grow([node.branch], n_past)
                self._branches.fork(parent, node.branch, n_past, n_past + len(node.path) - 1)
            else:
                continue
            taken.add(parent)
            # More tokens are decoded than end up in the tree, so the context may run out first.
            self._room -= 1
            placed.append(node)
        return placed


def _likeliest(nodes: Sequence[Node], limits: Limits) -> list[Node]:
    """The nodes that are worth verifying, likeliest first."""
    best = sorted(nodes, key=lambda node: -node.chance)[: limits.n_max]
    for place, node in enumerate(best):
        if not limits.pays(node.path, place):
            return best[:place]
    return best

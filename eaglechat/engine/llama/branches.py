"""Sequences that share the cells of one: the paths of a tree, each with what stands before it.

The trunk is sequence 0. A branch holds the first positions of the trunk in the same cells, as many
as were shared with it, and is brought up to date when a tree needs it: sharing costs a pass over
the cells of the KV cache, but no computing.
"""

from __future__ import annotations

from collections.abc import Sequence

from eaglechat.engine.llama.objects import Context

TRUNK = 0
_ALL = -1
"""Stands for every sequence."""


class Branches:
    """The sequences of a context, as long as nobody else changes what they hold."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._shared = [0] * context.n_seq
        """Positions from 0 on that each branch has in common with the trunk."""
        self.most = context.n_seq
        """The trunk and its branches: paths that a tree can have."""

    def forget(self, start: int, end: int = -1) -> bool:
        """Drop the positions from `start` on, or up to `end`; False if the memory cannot."""
        if end < 0:
            self._shared = [min(shared, start) for shared in self._shared]
        # A recurrent state, which has no branches, knows its sequences only one by one.
        return self._context.forget(_ALL if self.most > 1 else TRUNK, start, end)

    def shift(self, start: int, end: int) -> None:
        """Drop the positions from `start` up to `end`, and move those from `end` on to `start`."""
        self.forget(start, end)
        self._context.shift(TRUNK, start, end)
        self._shared = [min(shared, max(start, shared - (end - start))) for shared in self._shared]

    def grow(self, branches: Sequence[int], length: int) -> None:
        """Bring these branches to the trunk's first `length` positions."""
        for branch in branches:
            if branch != TRUNK and self._shared[branch] < length:
                self._context.share(TRUNK, branch, self._shared[branch], length)
                self._shared[branch] = length

    def fork(self, parent: int, branch: int, start: int, end: int) -> None:
        """Have a branch that was grown to `start` hold its parent's positions up to `end` too."""
        if end > start:
            self._context.share(parent, branch, start, end)

    def settle(self, winner: int, branches: Sequence[int], start: int, end: int) -> None:
        """The trunk goes on with the winner's positions from `start` up to `end`; what else these
        branches, which share what is before, and the trunk hold from `start` on is dropped."""
        if winner != TRUNK:
            self._context.forget(TRUNK, start)
            self.fork(winner, TRUNK, start, end)
        for branch in branches:
            if branch != TRUNK:
                self._context.forget(branch, start)
                self._shared[branch] = start
        self._context.forget(TRUNK, end)

"""The sequences of a context that verifies trees: one for each path, in shared KV cells.

Sequence 0 is the trunk. A branch shares the cells of the trunk's first positions, up to some
length, and is extended when a tree needs it. Sharing takes a pass over the KV cache's cells, but
computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from eaglechat.engine.llama.objects import Context

TRUNK = 0
_ALL = -1
"""llama.cpp's number for every sequence."""


class Branches:
    """The sequences of a context, whose positions only this class changes."""

    def __init__(self, context: Context, only: int | None = None) -> None:
        """`only` is the trunk where others use the other sequences; it then has no branches."""
        self._context, self._trunk = context, TRUNK if only is None else only
        self.most = context.n_seq if only is None else 1
        """The most paths that a tree can have."""
        self._shared = [0] * self.most
        """How many first positions each branch shares with the trunk."""

    def forget(self, start: int, end: int = -1) -> bool:
        """Drop the positions from `start` up to `end`, or all from `start` on, of all sequences.

        Returns False if the memory cannot.
        """
        if end < 0:
            self._shared = [min(shared, start) for shared in self._shared]
        # A recurrent state has no branches, and refuses the number for every sequence.
        return self._context.forget(_ALL if self.most > 1 else self._trunk, start, end)

    def shift(self, start: int, end: int) -> None:
        """Drop the positions from `start` up to `end`, and move those from `end` on to `start`."""
        self.forget(start, end)
        self._context.shift(self._trunk, start, end)
        self._shared = [min(shared, max(start, shared - (end - start))) for shared in self._shared]

    def grow(self, branches: Sequence[int], length: int) -> None:
        """Let these branches share the trunk's first `length` positions."""
        for branch in branches:
            if branch != TRUNK and self._shared[branch] < length:
                self._context.share(TRUNK, branch, self._shared[branch], length)
                self._shared[branch] = length

    def fork(self, parent: int, branch: int, start: int, end: int) -> None:
        """Let a branch of length `start` share its parent's positions up to `end`."""
        if end > start:
            self._context.share(parent, branch, start, end)

    def settle(self, winner: int, branches: Sequence[int], start: int, end: int) -> None:
        """Keep the winner's positions from `start` up to `end` as the trunk's, and drop all other
        positions from `start` on of the trunk and these branches."""
        if winner != TRUNK:
            self._context.forget(TRUNK, start)
            self.fork(winner, TRUNK, start, end)
        for branch in branches:
            if branch != TRUNK:
                self._context.forget(branch, start)
                self._shared[branch] = start
        self._context.forget(TRUNK, end)

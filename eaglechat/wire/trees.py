"""Drafts as trees: each token names the index of the one it follows, which stands before it."""

from __future__ import annotations

from collections.abc import Sequence

LAST_TOKEN = -1
"""Stands for the token that a draft follows, as the parent of those right behind it."""


def children(parents: Sequence[int], parent: int) -> list[int]:
    """Indices of the tokens that follow the one at `parent`."""
    return [index for index, before in enumerate(parents) if before == parent]


def depths(parents: Sequence[int]) -> list[int]:
    """Of each token: how many there are from the first of its path to it."""
    found: list[int] = []
    for parent in parents:
        found.append(1 if parent == LAST_TOKEN else found[parent] + 1)
    return found

"""Features of the target that wait, from the target's decode until the draft takes them in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eaglechat.engine.llama.bindings import Floats

_CAPACITY = 64
"""Rows that fit without growing: a few rounds of the longest draft."""


class Boundary(NamedTuple):
    """The last row, paired with whatever token follows it."""

    token: int
    features: Floats


class WaitingRows:
    """Rows of features with their tokens, in the order of their positions."""

    def __init__(self, width: int) -> None:
        self.tokens: list[int] = []
        self._store = np.empty((_CAPACITY, width), dtype=np.float32)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def features(self) -> Floats:
        """A view [rows, width]; valid until rows are added."""
        return self._store[: len(self.tokens)]

    def add(self, tokens: Sequence[int], layers: Sequence[Floats], first: int) -> None:
        """Add one row for each token: rows from `first` on of the layers [n, n_embd], side by
        side."""
        start = len(self.tokens)
        self.tokens += tokens
        end = len(self.tokens)
        if end > len(self._store):
            grown = np.empty((2 * end, self._store.shape[1]), dtype=np.float32)
            grown[:start] = self._store[:start]
            self._store = grown
        column = 0
        for layer in layers:
            width = layer.shape[1]
            self._store[start:end, column : column + width] = layer[first : first + len(tokens)]
            column += width

    def last(self) -> Boundary:
        return Boundary(self.tokens[-1], self.features[-1].copy())

    def put(self, row: Boundary) -> None:
        """Add a row that `last` returned."""
        self.add([row.token], [row.features[None]], 0)

    def keep(self, n_rows: int) -> None:
        """Keep the first `n_rows` rows."""
        del self.tokens[n_rows:]
        if not self.tokens:
            self._shrink()

    def keep_path(self, start: int, path: Sequence[int]) -> None:
        """Keep the rows before `start`, and those at `start` + each index of the ascending
        `path`."""
        rows = [start + place for place in path]
        self._store[start : start + len(rows)] = self._store[rows]
        self.tokens[start:] = [self.tokens[row] for row in rows]

    def remove(self, first: int, last: int) -> None:
        """Remove rows `first` to `last` - 1, as far as they exist."""
        end = len(self.tokens)
        behind = self._store[min(last, end) : end].copy()
        del self.tokens[first:last]
        if not self.tokens:
            self._shrink()
        self._store[len(self.tokens) - len(behind) : len(self.tokens)] = behind

    def _shrink(self) -> None:
        if len(self._store) > _CAPACITY:
            self._store = np.empty((_CAPACITY, self._store.shape[1]), dtype=np.float32)

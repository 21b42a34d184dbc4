"""What drafters that read hidden states of the target have in common: the states wait as rows, from
the target's decode until the draft takes them in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eaglechat.engine.drafters.base import Drafter, shifted
from eaglechat.engine.llama.bindings import Floats
from eaglechat.engine.llama.branches import Branches
from eaglechat.engine.llama.objects import Batch, Context

_CAPACITY = 64
"""Rows that fit without growing: a few rounds of the longest draft."""


class PendingRow(NamedTuple):
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

    def last(self) -> PendingRow:
        return PendingRow(self.tokens[-1], self.features[-1].copy())

    def put(self, row: PendingRow) -> None:
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


class RowDrafter(Drafter):
    """What it sees waits as rows, one for each position, until it drafts.

    Positions below `_taken` have been taken in: they are in the draft's KV cache, if it has one.
    For each later position a row waits.
    """

    def __init__(
        self, target: Context, draft: Context, width: int, seq_id: int | None = None
    ) -> None:
        """`width` is that of a row. Both contexts stay the caller's. With a `seq_id` others use the
        other sequences of both."""
        super().__init__(draft)
        self._target = target
        self.layers = draft.model.target_layers
        """The target layers whose inputs it reads."""
        self._kv = Branches(draft, only=seq_id)
        self._rows = WaitingRows(width)
        self._taken = 0
        self._batch_start = 0
        """Index among the waiting rows of the first row of the batch last seen."""
        self._is_closed = False

    def close(self) -> None:
        """Stop the export of states too."""
        if not self._is_closed:
            self._is_closed = True
            self.set_export(False)
            super().close()

    @property
    def known(self) -> int:
        return self._taken + len(self._rows)

    @property
    def waiting(self) -> int:
        return len(self._rows)

    @property
    def n_verified(self) -> int:
        """Proposed tokens in the batch last seen."""
        return len(self._rows) - self._batch_start - 1

    # --- what the target holds ---

    def resume(self, tokens: Sequence[int]) -> int:
        self._rewind(min(len(tokens), self.known))
        return self.known

    def _rewind(self, length: int) -> None:
        """Forget the positions from `length` on."""
        self._rows.keep(max(0, length - self._taken))
        self._taken = min(self._taken, length)
        self._kv.forget(self._taken)

    def shift(self, start: int, end: int) -> None:
        """If it has not seen all of it, or its KV cache cannot shift, it knows nothing from `start`
        on."""
        if self.known < end or not self.draft.can_shift:
            self._rewind(min(start, self.known))
            return
        self._kv.forget(self._taken)
        self._shift_taken(start, end)
        # Rows hold no position, so those that wait stay as they are.
        self._rows.remove(max(0, start - self._taken), max(0, end - self._taken))
        self._taken = shifted(self._taken, start, end)

    def _shift_taken(self, start: int, end: int) -> None:
        self._kv.shift(start, end)

    def set_export(self, enabled: bool) -> None:
        self._target.extract_layer_inputs(self.layers, enabled)

    # --- a round ---

    def _see(self, batch: Batch, first: int, last: int) -> None:
        # A row is some ten thousand numbers: no more wait than a batch has.
        if len(self._rows) + last - first > self.draft.n_batch:
            self.take_in()
        self._batch_start = len(self._rows)
        self._keep(batch, first, last)

    def _keep(self, batch: Batch, first: int, last: int) -> None:
        """Add what these rows of the batch exported to the waiting rows."""
        layers = [self._target.layer_inputs(layer, len(batch)) for layer in self.layers]
        self._rows.add(batch.tokens[first:last], layers, first)

    def accept(self, path: Sequence[int]) -> None:
        self._rows.keep_path(self._batch_start + 1, path)

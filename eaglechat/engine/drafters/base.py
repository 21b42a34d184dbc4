"""What the speculative loop asks of a drafter that runs a model, and what all kinds have in common.

A drafter proposes tokens that may follow the last one; the target decides. A round is `propose`,
the target's decode of [last token, *proposal], `see` of that batch, and `accept` of what the target
chose. Before a reply, `resume` says what of the conversation the target has to decode again.

A kind of drafter is a file beside this one, which makes a `Drafter`, and a row in `pairing.py`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from eaglechat.engine.drafters.proposal import Limits, Proposal
from eaglechat.engine.llama.bindings import Floats
from eaglechat.engine.llama.branches import Branches
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.gguf.header import GGUFHeader
from eaglechat.wire.errors import ProcessError
from eaglechat.wire.load_options import LoadOptions

MOST_WAITING = 32
"""Under an automatic length, a draft model takes in its waiting rows once there are more than this:
a trial of drafting pays for those that wait."""
_CAPACITY = 64
"""Rows that fit without growing: a few rounds of the longest draft."""


@dataclass(frozen=True)
class Opening:
    """What a drafter is made of."""

    owned: ExitStack
    """Closes what is made, in the reverse order."""
    target: Context
    model: Model
    """The draft; the target's model if the drafter is in its file."""
    header: GGUFHeader
    """The header of that model's file."""
    options: LoadOptions
    n_threads: int

    def context(self, **options: Any) -> Context:
        """The drafter's own context, with these options besides those of the load. Raises
        ModelLoadError."""
        return self.owned.enter_context(
            Context(
                self.model,
                n_ctx=self.target.n_ctx,
                n_batch=self.options.n_batch,
                n_threads=self.n_threads,
                flash_attention=self.options.flash_attention,
                kv_type=self.options.draft_kv_type,
                **options,
            )
        )


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


class Drafter(ABC):
    """Proposes tokens for the one sequence of a target, with a context of its own.

    What it sees of the target waits as rows, one for each position, until it drafts. Positions
    below `_taken` have been taken in: they are in the draft's KV cache, if it has one. Whatever it
    raises never ends a reply: the loop goes on without it.
    """

    name: str
    """As the records of a round have it."""
    in_one_pass = False
    """Whether one decode drafts all tokens, so that ending a draft early saves nothing."""

    def __init__(
        self, target: Context, draft: Context, width: int, seq_id: int | None = None
    ) -> None:
        """A row has `width` numbers. Both contexts stay the caller's. With a `seq_id` others use
        the other sequences of both."""
        self._target, self.draft = target, draft
        self.layers = draft.model.target_layers
        """The target layers whose inputs it reads."""
        self._batch = Batch(draft)
        self._kv = Branches(draft, only=seq_id)
        self._rows = WaitingRows(width)
        # A row is some ten thousand numbers: no more wait than a batch has.
        self._most_waiting = draft.n_batch
        self._taken = 0
        self._batch_start = 0
        """Index among the waiting rows of the first row of the batch last seen."""
        self._process_s = 0.0
        self._is_closed = False

    def close(self) -> None:
        """Call it before closing the contexts."""
        if not self._is_closed:
            self._is_closed = True
            self.set_export(False)
            self._batch.close()

    @property
    def known(self) -> int:
        """Positions from 0 on that it has seen. `propose` needs all the target holds."""
        return self._taken + len(self._rows)

    @property
    def waiting(self) -> int:
        """Positions it has seen but not taken in, for which the next proposal pays."""
        return len(self._rows)

    @property
    @abstractmethod
    def longest(self) -> int:
        """The most tokens it can propose now; 0 while it has seen too little of the text before
        the next token to guess it."""

    @property
    def grows_trees(self) -> bool:
        """Whether it can propose trees that the target's KV cache can hold."""
        return False

    @property
    def n_verified(self) -> int:
        """Proposed tokens in the batch last seen."""
        return len(self._rows) - self._batch_start - 1

    @property
    def process_ms(self) -> float:
        """Milliseconds since it was made that went by reading what the target computed: for
        EAGLE-3, copying features and running the encoder."""
        return self._process_s * 1000.0

    # --- what the target holds ---

    def resume(self, tokens: Sequence[int]) -> int:
        """Go on after `tokens`, which the target holds, and forget what was behind them.

        Returns how many of them the target can keep: it decodes the others again, for the drafter
        to see them.
        """
        self._rewind(min(len(tokens), self.known))
        return self.known

    def _rewind(self, length: int) -> None:
        """Forget the positions from `length` on."""
        self._rows.keep(max(0, length - self._taken))
        self._taken = min(self._taken, length)
        self._kv.forget(self._taken)

    def shift(self, start: int, end: int) -> None:
        """Between two rounds, positions `start` to `end` - 1 have left the target's KV cache, and
        those from `end` on have moved down to `start`. A drafter that has not seen all of it, or
        whose KV cache cannot shift, knows nothing from `start` on."""
        if self.known < end or not self.draft.can_shift:
            self._rewind(min(start, self.known))
            return
        self._kv.forget(self._taken)
        self._kv.shift(start, end)
        # Rows hold no position, so those that wait stay as they are.
        self._rows.remove(max(0, start - self._taken), max(0, end - self._taken))
        self._taken = shifted(self._taken, start, end)

    def set_export(self, enabled: bool) -> None:
        """Have the target export what this drafter reads in every decode, which slows it a little,
        or stop. What the target decodes without, this drafter has not seen."""
        self._target.extract_layer_inputs(self.layers, enabled)

    def mark(self) -> object:
        """What `restore` needs, beside what this drafter holds, to go on from here later."""
        return ()

    def restore(self, length: int, mark: object) -> None:  # noqa: B027 - not every kind needs marks
        """Get ready to go on after the first `length` positions, where `mark` was made. All of them
        are still known. `resume` follows."""

    # --- a round ---

    def see(self, batch: Batch, first: int = 0, last: int | None = None) -> None:
        """Take note of a batch that the target has just decoded, or of its rows `first` to `last` -
        1. Raises ProcessError if positions are missing before it, DecodeError."""
        started, process_s = time.perf_counter(), self._process_s
        last = len(batch) if last is None else last
        if batch.positions[first] != self.known:
            raise ProcessError(
                f"the draft saw {self.known} positions, the batch goes on at "
                f"{batch.positions[first]}"
            )
        if len(self._rows) + last - first > self._most_waiting:
            self.take_in()
        self._batch_start = len(self._rows)
        self._keep(batch, first, last)
        # Set, not added to: `take_in` may have counted its own time.
        self._process_s = process_s + time.perf_counter() - started

    def _keep(self, batch: Batch, first: int, last: int) -> None:
        """Add what these rows of the batch exported to the waiting rows."""
        layers = [self._target.layer_inputs(layer, len(batch)) for layer in self.layers]
        self._rows.add(batch.tokens[first:last], layers, first)

    @abstractmethod
    def take_in(self) -> None:
        """Take in what waits now. Raises ProcessError, DecodeError."""

    def propose(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        """What may follow token `id_last`, which stands at position `n_past`. Raises ProcessError
        if positions are missing or the draft fails to decode, DecodeError."""
        if limits.n_max == 0 or n_past == 0:
            return Proposal()
        if self.known != n_past:
            raise ProcessError(
                f"the draft saw {self.known} positions, drafting after position {n_past} needs "
                f"{n_past}"
            )
        return self._draft(n_past, id_last, limits)

    @abstractmethod
    def _draft(self, n_past: int, id_last: int, limits: Limits) -> Proposal: ...

    def accept(self, path: Sequence[int]) -> None:
        """The target chose the tokens at these indices of the proposal in the batch just seen,
        whoever made it; each is a child of the one before. Forget the others."""
        self._rows.keep_path(self._batch_start + 1, path)


def decode(draft: Context, batch: Batch) -> None:
    """Run a draft's decoder. Raises ProcessError."""
    status = draft.decode(batch)
    if status != 0:
        raise ProcessError(f"the draft failed to decode (llama.cpp status {status})")


def shifted(position: int, start: int, end: int) -> int:
    """Where a position is after those from `start` up to `end` have left."""
    return min(position, max(start, position - (end - start)))

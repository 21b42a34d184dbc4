"""What the speculative loop asks of a drafter that runs a model, and what all kinds have in common.

A drafter proposes tokens that may follow the last one; the target decides. A round is `propose`,
the target's decode of [last token, *proposal], `see` of that batch, and `accept` of what the target
chose. Before a reply, `resume` says what of the conversation the target has to decode again.

A kind of drafter is a file beside this one, which makes a `Drafter`, and a row in
`gguf/pairing.py`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from eaglechat.engine.drafters.proposal import Limits, Proposal
from eaglechat.engine.llama.bindings import Floats
from eaglechat.engine.llama.objects import Batch, Branches, Context, DraftHead, Model, shifted
from eaglechat.engine.llama.sampler import likeliest
from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.pairing import KINDS
from eaglechat.wire.drafters import DrafterKind
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import LoadOptions
from eaglechat.wire.records import ms_since

MOST_WAITING = 32
"""Under an automatic length, a draft model takes in its waiting rows once there are more than this,
if they are cheap: a trial of drafting pays for those that wait."""
_SPACE = 32
"""Waiting rows for which there is room beside those there are."""
_TOP_K = 10
"""As in llama.cpp, a draft token's probability is its share among this many likeliest tokens."""


class ProcessError(EngineError):
    """A drafter failed to take in what the target computed, or to draft."""


@dataclass(frozen=True)
class Opening:
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


class WaitingRows:
    """Rows of features with their tokens, in the order of their positions."""

    def __init__(self, width: int) -> None:
        self.tokens: list[int] = []
        self._space: Floats = np.empty((_SPACE, width), dtype=np.float32)
        """The rows, and room for more: a plain round adds one, and leaves those before it."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def features(self) -> Floats:
        """[rows, width]; valid until rows are added or removed."""
        return self._space[: len(self.tokens)]

    def add(self, tokens: Sequence[int], layers: Sequence[Floats], first: int) -> None:
        """Add one row for each token: rows from `first` on of the layers [n, n_embd], side by
        side."""
        start, end = len(self.tokens), len(self.tokens) + len(tokens)
        if end > len(self._space):
            self._move(end)
        column = 0
        for layer in layers:
            width = layer.shape[1]
            rows = layer[first : first + len(tokens)]
            self._space[start:end, column : column + width] = rows
            column += width
        self.tokens += tokens

    def _move(self, n_rows: int) -> None:
        """Have room for so many rows, and for some more."""
        n_space = n_rows + n_rows // 4 + _SPACE
        space = np.empty((n_space, self._space.shape[1]), dtype=np.float32)
        space[: len(self.tokens)] = self.features
        self._space = space

    def keep(self, n_rows: int) -> None:
        self.remove(n_rows, len(self.tokens))

    def keep_path(self, start: int, path: Sequence[int]) -> None:
        """Keep the rows before `start`, and those at `start` + each index of the ascending
        `path`."""
        for row, place in enumerate(path, start):
            if row < start + place:
                self.tokens[row] = self.tokens[start + place]
                self._space[row] = self._space[start + place]
        self.keep(start + len(path))

    def remove(self, first: int, last: int) -> None:
        """Remove rows `first` to `last` - 1, as far as they exist."""
        if first >= min(last, len(self.tokens)):
            return
        behind = self.features[last:]
        self._space[first : first + len(behind)] = behind
        del self.tokens[first:last]
        if len(self._space) > 4 * (len(self.tokens) + _SPACE):
            # A few rows do not hold the memory of a long prompt's.
            self._move(len(self.tokens))


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
        self.process_ms = 0.0
        """Milliseconds that went by reading what the target computed: for EAGLE-3, copying features
        and running the encoder."""
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

    # --- what the target holds ---

    def resume(self, tokens: Sequence[int]) -> int:
        """Go on after `tokens`, which the target holds, and forget what was behind them.

        Returns how many of them the target can keep: it decodes the others again, for the drafter
        to see them.
        """
        self._rewind(min(len(tokens), self.known))
        return self.known

    def _rewind(self, length: int) -> None:
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
        started, process_ms = time.perf_counter(), self.process_ms
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
        self.process_ms = process_ms + ms_since(started)

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
        return limits.kept(self._draft(n_past, id_last, limits))

    @abstractmethod
    def _draft(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        """As `propose`, however short."""

    def accept(self, path: Sequence[int]) -> None:
        """The target chose the tokens at these indices of the proposal in the batch just seen,
        whoever made it; each is a child of the one before. Forget the others."""
        self._rows.keep_path(self._batch_start + 1, path)


class Likeliest:
    """Finds a draft's likeliest tokens in logits that are -inf outside its vocabulary.

    The draft's vocabulary is a fraction of the target's, and is found once. Once the logits of the
    head itself match, llama.cpp's scatter to the whole vocabulary is skipped (`head.is_last`).
    """

    def __init__(self, head: DraftHead | None = None) -> None:
        self._head = head
        self._vocabulary: npt.NDArray[np.intp] | None = None
        self._candidates: Floats = np.empty(0, dtype=np.float32)

    def top_k(self, logits: Floats, row: int = 0) -> list[tuple[int, float]]:
        """The `_TOP_K` likeliest tokens of a row with logits [n_vocab], likeliest first, each with
        its share among them. Raises ProcessError if no logit is finite."""
        vocabulary, candidates = self._of_vocabulary(logits, row)
        top = likeliest(candidates, _TOP_K)
        if top is None:
            top = candidates.argsort()[: -1 - _TOP_K : -1]
        if not len(top) or not isfinite(candidates[top[0]]):
            raise ProcessError("the draft computed no finite logits")
        odds = np.exp(candidates[top] - candidates[top[0]])
        shares = (odds / odds.sum()).tolist()
        return list(zip(vocabulary[top].tolist(), shares, strict=True))

    def _of_vocabulary(self, logits: Floats, row: int) -> tuple[npt.NDArray[np.intp], Floats]:
        """The tokens of the draft's vocabulary and their logits; valid until the next call."""
        if self._vocabulary is None:
            self._vocabulary = np.flatnonzero(np.isfinite(logits))
            self._candidates = np.empty(len(self._vocabulary), dtype=np.float32)
        elif self._head is not None and self._head.is_last:
            return self._vocabulary, self._head.logits(row, len(self._vocabulary))
        logits.take(self._vocabulary, out=self._candidates, mode="clip")
        if self._head is not None:
            own = self._head.logits(row, len(self._vocabulary))
            self._head.is_last = len(own) > 0 and np.array_equal(own, self._candidates)
        return self._vocabulary, self._candidates


def open_drafter(kind: DrafterKind, opening: Opening) -> Drafter:
    """Raises ModelLoadError."""
    module = import_module(f"{__package__}.{KINDS[kind].file}")
    drafter: Drafter = module.open_drafter(opening)
    opening.owned.callback(drafter.close)
    return drafter


def decode(draft: Context, batch: Batch) -> None:
    """Raises ProcessError."""
    status = draft.decode(batch)
    if status != 0:
        raise ProcessError(f"the draft failed to decode (llama.cpp status {status})")

"""Drafting with a smaller model of the same vocabulary, which has a context of its own.

The algorithm is llama.cpp's `common_speculative_impl_draft_simple` (common/speculative.cpp), after
Leviathan et al. (arXiv 2211.17192): the model writes on by itself, token after token. It reads
nothing of the target but its tokens.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import takewhile

from eaglechat.engine.drafters.base import (
    Drafter,
    Drafting,
    Limits,
    Opening,
    Proposal,
    decode,
    shifted,
)
from eaglechat.engine.drafters.likeliest import Likeliest
from eaglechat.engine.llama.branches import TRUNK
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.wire.errors import ModelLoadError
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT


class ModelDrafter(Drafter):
    """Drafts chains. `_tokens` are those that the target holds. The first `_taken` of them are in
    the model's KV cache, and behind them there `_ahead`: what it drafted last, with the last token.
    """

    name = "model"

    def __init__(self, draft: Context, n_vocab: int) -> None:
        """`n_vocab` is the target's; the draft's may be larger."""
        super().__init__(draft)
        self._n_vocab = n_vocab
        self._likeliest = Likeliest()
        self._tokens: list[int] = []
        self._taken = 0
        self._ahead: list[int] = []
        self._batch_start = 0
        """Index in `_tokens` of the first token of the batch last seen."""

    @property
    def known(self) -> int:
        return len(self._tokens)

    @property
    def waiting(self) -> int:
        return len(self._tokens) - self._taken

    @property
    def longest(self) -> int:
        return N_DRAFT_MAX_LIMIT if self._tokens else 0

    def resume(self, tokens: Sequence[int]) -> int:
        """The target need not decode anything again: the tokens that it has not seen wait."""
        del self._tokens[len(tokens) :]
        self._tokens += tokens[len(self._tokens) :]
        self._rewind(min(self._taken, len(tokens)))
        return len(tokens)

    def shift(self, start: int, end: int) -> None:
        if self.known < end:
            del self._tokens[start:]
        else:
            del self._tokens[start:end]
        if self._taken > start and not (self._taken >= end and self.draft.can_shift):
            self._rewind(start)
        elif self._taken >= end:
            self._rewind(self._taken)
            self.draft.shift(TRUNK, start, end)
            self._taken = shifted(self._taken, start, end)

    def _rewind(self, length: int) -> None:
        """Keep only the first `length` positions in the KV cache."""
        self._taken, self._ahead = length, []
        self.draft.forget(TRUNK, length)

    # --- a round ---

    def _see(self, batch: Batch, first: int, last: int) -> None:
        self._batch_start = self.known
        self._tokens += batch.tokens[first:last]

    def take_in(self) -> None:
        started = time.perf_counter()
        self._take_in(0)
        self._process_s += time.perf_counter() - started

    def _take_in(self, n_left: int) -> None:
        """Write the waiting tokens into the KV cache until at most `n_left` wait."""
        if self._ahead:
            self._rewind(self._taken)
        while self.waiting > n_left:
            chunk = self._tokens[self._taken : self._taken + self.draft.n_batch]
            self._batch.clear()
            self._batch.add_tokens(chunk, self._taken, TRUNK, output=False)
            decode(self.draft, self._batch)
            self._taken += len(chunk)

    def _draft(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        self._take_in(self.draft.n_batch - 1)
        return limits.chain(self._drafting(n_past, id_last), self.name)

    def _drafting(self, n_past: int, token: int) -> Drafting:
        """Place after place behind `token`."""
        self._batch.clear()
        # What a round accepted behind the last draft goes with the first step.
        self._batch.add_tokens(self._tokens[self._taken :], self._taken, TRUNK, output=False)
        while True:
            row = len(self._batch)
            self._batch.add_tokens([token], n_past + len(self._ahead), TRUNK, output=True)
            decode(self.draft, self._batch)
            self._taken = n_past
            self._ahead.append(token)
            token = yield self._likeliest.top_k(self.draft.logits(row)[: self._n_vocab])
            self._batch.clear()

    def accept(self, path: Sequence[int]) -> None:
        first = self._batch_start + 1
        self._tokens[first:] = [self._tokens[first + index] for index in path]
        if self._ahead:
            pairs = zip(self._ahead, self._tokens[self._taken :], strict=False)
            n_same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            self._rewind(self._taken + n_same)


def open_drafter(opening: Opening) -> ModelDrafter:
    """Raises ModelLoadError."""
    if not opening.model.keeps_whole_history:
        raise ModelLoadError(
            f"{opening.header.path.name} is a recurrent or hybrid model: its state cannot take "
            "back rejected tokens, so it cannot draft"
        )
    return ModelDrafter(opening.context(), opening.target.model.n_vocab)

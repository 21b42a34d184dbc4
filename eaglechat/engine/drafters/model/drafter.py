"""Drafting with a smaller model of the same vocabulary, which has a context of its own.

The algorithm is llama.cpp's `common_speculative_impl_draft_simple` (common/speculative.cpp), after
Leviathan et al. (arXiv 2211.17192): the model writes on by itself, token after token. It reads
nothing of the target but its tokens.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import takewhile

from eaglechat.engine.drafters.base import Limits, Opening, Proposal, Spent, shifted
from eaglechat.engine.drafters.lazy_drafter import decode
from eaglechat.engine.drafters.likeliest import Likeliest
from eaglechat.engine.llama.branches import TRUNK
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.wire.errors import ModelLoadError, ProcessError
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT


class ModelDrafter:
    """Drafts chains. `_tokens` are those that the target holds. The first `_taken` of them are in
    the model's KV cache, and behind them there `_ahead`: what it drafted last, with the last token.
    """

    name = "model"
    in_one_pass = False
    grows_trees = False

    def __init__(self, draft: Context, n_vocab: int) -> None:
        """`n_vocab` is the target's; the draft's may be larger. The context stays the caller's."""
        self.draft = draft
        self._n_vocab = n_vocab
        self._batch = Batch(draft)
        self._likeliest = Likeliest()
        self._tokens: list[int] = []
        self._taken = 0
        self._ahead: list[int] = []
        self._batch_start = 0
        """Index in `_tokens` of the first token of the batch last seen."""
        self._process_s = self._draft_s = 0.0

    def close(self) -> None:
        self._batch.close()

    @property
    def known(self) -> int:
        return len(self._tokens)

    @property
    def waiting(self) -> int:
        return len(self._tokens) - self._taken

    @property
    def longest(self) -> int:
        return N_DRAFT_MAX_LIMIT if self._tokens else 0

    @property
    def spent(self) -> Spent:
        return Spent(self._process_s * 1000.0, self._draft_s * 1000.0)

    def set_export(self, enabled: bool) -> None:
        """It reads no states of the target."""

    def mark(self) -> object:
        """Tokens are all it needs, and `resume` gives them."""
        return ()

    def restore(self, length: int, mark: object) -> None:
        """See `mark`."""

    def resume(self, tokens: Sequence[int], *, to_draft: bool) -> int:
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

    def see(self, batch: Batch) -> None:
        """Raises ProcessError if tokens are missing before the batch."""
        if batch.positions[0] != self.known:
            raise ProcessError(
                f"the draft saw {self.known} positions, the batch goes on at {batch.positions[0]}"
            )
        self._batch_start = self.known
        self._tokens += batch.tokens

    def take_in(self) -> None:
        """Write all waiting tokens into the KV cache. Raises ProcessError, DecodeError."""
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

    def propose(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        """Raises ProcessError if tokens are missing or the draft fails to decode, DecodeError."""
        if limits.n_max == 0 or n_past == 0:
            return Proposal()
        if self.known != n_past:
            raise ProcessError(
                f"the draft saw {self.known} positions, drafting after position {n_past} needs "
                f"{n_past}"
            )
        started = time.perf_counter()
        self._take_in(self.draft.n_batch - 1)
        self._batch.clear()
        # What a round accepted behind the last draft goes with the first step.
        self._batch.add_tokens(self._tokens[self._taken :], self._taken, TRUNK, output=False)
        ids: list[int] = []
        probabilities: list[float] = []
        token = id_last
        while len(ids) < limits.n_max:
            row = len(self._batch)
            self._batch.add_tokens([token], n_past + len(ids), TRUNK, output=True)
            decode(self.draft, self._batch)
            self._taken = n_past
            self._ahead.append(token)
            token, probability = self._likeliest.of(self.draft.logits(row))
            if token >= self._n_vocab or not limits.keep([*probabilities, probability]):
                break
            ids.append(token)
            probabilities.append(probability)
            self._batch.clear()
        self._draft_s += time.perf_counter() - started
        return Proposal.chain(ids, probabilities, self.name)

    def accept(self, path: Sequence[int]) -> None:
        first = self._batch_start + 1
        self._tokens[first:] = [self._tokens[first + index] for index in path]
        if self._ahead:
            pairs = zip(self._ahead, self._tokens[self._taken :], strict=False)
            n_same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            self._rewind(self._taken + n_same)


def open_drafter(opening: Opening) -> ModelDrafter:
    """Make the model's context and the drafter. Raises ModelLoadError."""
    target, options, owned = opening.target, opening.options, opening.owned
    if not opening.model.keeps_whole_history:
        raise ModelLoadError(
            f"{opening.header.path.name} is a recurrent or hybrid model: its state cannot take "
            "back rejected tokens, so it cannot draft"
        )
    draft = owned.enter_context(
        Context(
            opening.model,
            n_ctx=target.n_ctx,
            n_batch=options.n_batch,
            n_threads=opening.n_threads,
            flash_attention=options.flash_attention,
            kv_type=options.draft_kv_type,
        )
    )
    drafter = ModelDrafter(draft, target.model.n_vocab)
    owned.callback(drafter.close)
    return drafter

"""Drafting with multi-token-prediction heads: the target's own extra blocks, which guess the tokens
after the next one.

The algorithm is llama.cpp's `common_speculative_impl_draft_mtp` (common/speculative.cpp), after
DeepSeek-V3 (arXiv 2412.19437). A head reads the pair (token[P], h[P-1]) at position P, where h[P-1]
is the target's state before it. Behind the last token it goes on with its own states.

Only the time differs from llama.cpp: `see` keeps the target's states, and `propose` takes in those
of the accepted rows together with the first step. A round that drafts nothing costs it nothing.

Gemma 4's assistant drafts in the same way, but for its attention: it looks into the target's KV
cache and has none of its own, so it takes nothing in, and all its steps are at the position of the
last token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eaglechat.engine.drafters.base import Drafter, Likeliest, Opening, decode
from eaglechat.engine.drafters.proposal import Drafting, Limits, Proposal
from eaglechat.engine.llama.bindings import Floats
from eaglechat.engine.llama.objects import TRUNK, Batch, Context
from eaglechat.gguf.pairing import ASSISTANT, STATES_OF_ALL_ROWS
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT


class MtpDrafter(Drafter):
    """Drafts chains for the one sequence of a target context. A row has what a head reads at a
    position: its token, and the state of the position before it."""

    name = "mtp"

    def __init__(self, target: Context, heads: Context, n_heads: int, architecture: str) -> None:
        """`heads` is a context that runs the `n_heads` MTP heads of a model of this architecture.
        An assistant's must be made before the target's first decode, as it empties the KV cache.

        One head drafts any number of tokens, as it reads its own states. Of several, each was
        trained for one place behind the last token, so they draft as many tokens as there are.
        """
        super().__init__(target, heads, heads.model.n_embd_out)
        self._n_heads = n_heads
        self._is_assistant = architecture == ASSISTANT
        self._is_merged = n_heads == 1 and architecture in STATES_OF_ALL_ROWS
        self._last: Floats | None = self._no_state()
        """The state [1, n_embd_out] of the last known position. None: it is not known, and the
        target decodes that position again, whose row has been taken in."""
        self._likeliest = Likeliest()
        heads.export_states(of_outputs=not self._is_merged, width=heads.model.n_embd_out)
        self.set_export(True)

    @property
    def known(self) -> int:
        return self._taken - 1 if self._last is None else super().known

    @property
    def longest(self) -> int:
        if not self.known:
            return 0
        return N_DRAFT_MAX_LIMIT if self._n_heads == 1 else min(self._n_heads, N_DRAFT_MAX_LIMIT)

    def set_export(self, enabled: bool) -> None:
        self._target.export_states(enabled, of_outputs=False, width=self._target.model.n_embd_out)

    # --- what the target holds ---

    def _rewind(self, length: int) -> None:
        """Forget the positions from `length` on. Where the state of position `length` - 1 has been
        taken in, it is not known any more, and one position less is known."""
        if self._last is not None and length >= self._taken:
            if length < self.known:
                self._keep_rows(length - self._taken)
        elif length < self.known or self._last is not None:
            self._lose_states(length)

    def _keep_rows(self, n_rows: int) -> None:
        """Forget the rows from index `n_rows` on: that one has the state of the last that stays."""
        self._last = self._rows.features[n_rows][None].copy()
        self._rows.keep(n_rows)

    def _lose_states(self, length: int) -> None:
        """Of the first `length` positions, the last is to be seen again."""
        self._rows.keep(0)
        self._taken = length
        self._last = None if length else self._no_state()

    def mark(self) -> object:
        """The state of the last known position."""
        return self._last

    def restore(self, length: int, mark: object) -> None:
        if self._last is None or self._taken >= length:
            assert isinstance(mark, np.ndarray)
            self._rows.keep(0)
            self._taken, self._last = length, mark

    def shift(self, start: int, end: int) -> None:
        if self.known >= end and self._is_assistant:
            # llama.cpp moves the target's keys in the target's next decode, so one has to come
            # before the next draft: that of the last position, once more.
            self._lose_states(self.known - (end - start))
        else:
            super().shift(start, end)

    # --- a round ---

    def _keep(self, batch: Batch, first: int, last: int) -> None:
        states = self._target.states(len(batch))
        if self._last is None:
            self._last = states[first : first + 1]
            first += 1
            self._batch_start -= 1
        before = np.concatenate([self._last, states[first : last - 1]])
        self._rows.add(batch.tokens[first:last], [before], 0)
        self._last = states[last - 1 : last].copy()

    def take_in(self) -> None:
        if len(self._rows):
            for head in range(self._n_heads if not self._is_assistant else 0):
                self._begin(head)
                self._add_waiting()
                decode(self.draft, self._batch)
            self._all_taken()

    def _draft(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        assert self._last is not None
        draft = self._by_one_head if self._n_heads == 1 else self._by_heads
        return limits.chain(draft(n_past, id_last, self._last), self.name)

    def accept(self, path: Sequence[int]) -> None:
        n_rows = self._batch_start + 1 + len(path)
        if n_rows < len(self._rows):
            self._keep_rows(n_rows)

    def _by_one_head(self, position: int, token: int, state: Floats) -> Drafting:
        """Place after place behind `token` by one head, which reads its own state of the one
        before; `state` is that before `token`."""
        # The last token is drafted from in the batch of the waiting rows if both fit in one.
        if not self._is_merged or len(self._rows) >= self.draft.n_batch:
            self.take_in()
        self._begin(0)
        self._add_waiting()
        self._all_taken()
        row = len(self._batch)
        while True:
            self._batch.add_tokens([token], position, TRUNK, output=True, states=state)
            decode(self.draft, self._batch)
            token = yield self._likeliest.top_k(self.draft.logits(row))
            state = self.draft.state(row).copy()
            self._batch.clear()
            row, position = 0, position if self._is_assistant else position + 1

    def _by_heads(self, n_past: int, id_last: int, states: Floats) -> Drafting:
        """A place by each head. A head has a KV cache of its own for the drafted positions, so each
        reads the whole chain so far; `states` is that before `id_last`."""
        self.take_in()
        tokens = [id_last]
        for head in range(self._n_heads):
            self._begin(head)
            last = len(tokens) - 1
            # All rows are outputs: beside rows that are not, llama.cpp exports the state of another
            # row.
            self._batch.add_tokens(tokens, n_past, TRUNK, output=True, states=states)
            decode(self.draft, self._batch)
            tokens.append((yield self._likeliest.top_k(self.draft.logits(last))))
            states = np.concatenate([states, self.draft.state(last)])

    def _begin(self, head: int) -> None:
        """Start a batch for a head, without what it wrote behind the rows taken in."""
        if self._n_heads > 1:
            self.draft.choose_head(head)
        if not self._is_assistant:
            self.draft.forget(TRUNK, self._taken)
        self._batch.clear()

    def _add_waiting(self) -> None:
        tokens, states = self._rows.tokens, self._rows.features
        self._batch.add_tokens(tokens, self._taken, TRUNK, output=False, states=states)

    def _all_taken(self) -> None:
        self._taken += len(self._rows)
        self._rows.keep(0)

    def _no_state(self) -> Floats:
        """What the first position of a text has before it."""
        none: Floats = np.zeros((1, self.draft.model.n_embd_out), dtype=np.float32)
        return none


def open_drafter(opening: Opening) -> MtpDrafter:
    """Raises ModelLoadError."""
    heads = opening.context(n_outputs=N_DRAFT_MAX_LIMIT + 1, other=opening.target, runs_heads=True)
    header = opening.header
    return MtpDrafter(opening.target, heads, header.n_mtp_heads or 1, header.architecture)

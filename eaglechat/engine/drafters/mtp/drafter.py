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

import time
from collections.abc import Sequence

import numpy as np

from eaglechat.engine.drafters.base import Limits, Opening, Proposal, Spent, shifted
from eaglechat.engine.drafters.likeliest import Likeliest
from eaglechat.engine.drafters.mtp.pairing import ASSISTANT, STATES_OF_ALL_ROWS
from eaglechat.engine.drafters.waiting_rows import WaitingRows
from eaglechat.engine.llama.bindings import Floats
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.wire.errors import ProcessError
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

_SEQ_ID = 0


class MtpDrafter:
    """Drafts chains for the one sequence of a target context. Both contexts stay the caller's.

    The pairs of the first `_taken` positions are in the heads' KV cache, if they have one. Waiting
    rows are the tokens and states of the positions from there on.
    """

    name = "mtp"

    def __init__(self, target: Context, heads: Context, n_heads: int, architecture: str) -> None:
        """`heads` is a context that runs the `n_heads` MTP heads of a model of this architecture.
        An assistant's must be made before the target's first decode, as it empties the KV cache.

        One head drafts any number of tokens, as it reads its own states. Of several, each was
        trained for one place behind the last token, so they draft as many tokens as there are.
        """
        self._target = target
        self.heads = heads
        """The context that runs them."""
        self._n_heads = n_heads
        self._is_assistant = architecture == ASSISTANT
        self._is_merged = n_heads == 1 and architecture in STATES_OF_ALL_ROWS
        self._rows = WaitingRows(heads.model.n_embd_out)
        self._taken = 0
        self._before: Floats | None = self._no_state()
        """The state [1, n_embd_out] of the position before the first waiting row. None: it is not
        known, and the target decodes that position again, whose pair is in the KV cache."""
        self._batch_start = 0
        """Index among the waiting rows of the first row of the batch last seen; -1 if that was the
        position of `_before`."""
        self._likeliest = Likeliest()
        self._batch = Batch(heads)
        self._process_s = self._draft_s = 0.0
        heads.export_nextn(True, of_outputs=not self._is_merged)
        self.set_export(True)

    def close(self) -> None:
        """Free the batch and stop the export of states; call it before closing the contexts."""
        self.set_export(False)
        self._batch.close()

    @property
    def known(self) -> int:
        return self._taken - 1 if self._before is None else self._taken + len(self._rows)

    @property
    def waiting(self) -> int:
        return len(self._rows)

    @property
    def longest(self) -> int:
        if not self.known:
            return 0
        return N_DRAFT_MAX_LIMIT if self._n_heads == 1 else min(self._n_heads, N_DRAFT_MAX_LIMIT)

    @property
    def grows_trees(self) -> bool:
        return False

    @property
    def in_one_pass(self) -> bool:
        return False

    @property
    def spent(self) -> Spent:
        return Spent(self._process_s * 1000.0, self._draft_s * 1000.0)

    def set_export(self, enabled: bool) -> None:
        self._target.export_nextn(enabled)

    # --- what the target holds ---

    def resume(self, tokens: Sequence[int], *, to_draft: bool) -> int:
        self._rewind(min(len(tokens), self.known))
        return self.known

    def _rewind(self, length: int) -> None:
        """Forget the positions from `length` on. Where the state of position `length` - 1 has been
        taken in, it is not known any more, and one position less is known."""
        if self._before is not None and length >= self._taken:
            self._rows.keep(length - self._taken)
        elif length < self.known or self._before is not None:
            self._lose_states(length)

    def _lose_states(self, length: int) -> None:
        """Of the first `length` positions, the last is to be seen again."""
        self._rows.keep(0)
        self._taken = length
        self._before = None if length else self._no_state()

    def mark(self) -> object:
        """The state of the last known position."""
        return self._last_state()

    def restore(self, length: int, mark: object) -> None:
        if self._before is None or self._taken >= length:
            assert isinstance(mark, np.ndarray)
            self._rows.keep(0)
            self._taken, self._before = length, mark

    def shift(self, start: int, end: int) -> None:
        """If the heads have not seen all of it, or their KV cache cannot shift, they know nothing
        from `start` on."""
        if self.known >= end and self._is_assistant:
            # llama.cpp moves the target's keys in the target's next decode, so one has to come
            # before the next draft: that of the last position, once more.
            self._lose_states(self.known - (end - start))
            return
        if self.known < end or not self.heads.can_shift:
            self._rewind(min(start, self.known))
            return
        self.heads.forget(_SEQ_ID, self._taken)
        self.heads.shift(_SEQ_ID, start, end)
        if start < self._taken < end:
            # The next pair is that of `end`, which keeps its own state.
            self._before = self._rows.features[end - 1 - self._taken][None].copy()
        # States hold no position, so waiting rows stay as they are.
        self._rows.remove(max(0, start - self._taken), max(0, end - self._taken))
        self._taken = shifted(self._taken, start, end)

    # --- a round ---

    def see(self, batch: Batch) -> None:
        """Keep the states of a batch that the target has just decoded. Raises ProcessError if rows
        are missing before it."""
        started = time.perf_counter()
        if batch.positions[0] != self.known:
            raise ProcessError(
                f"the MTP heads saw {self.known} positions, the batch goes on at "
                f"{batch.positions[0]}"
            )
        states, first = self._target.nextn_states(len(batch)), 0
        if self._before is None:
            self._before, first = states[:1].copy(), 1
        # What waits, and the new rows, have to fit in one batch of the heads.
        if len(self._rows) and len(self._rows) + len(batch) > self.heads.n_batch:
            self.take_in()
        self._batch_start = len(self._rows) - first
        self._rows.add(batch.tokens[first:], [states], first)
        self._process_s += time.perf_counter() - started

    def take_in(self) -> None:
        """Write all waiting pairs into the heads' KV cache. Raises DecodeError, ProcessError."""
        if len(self._rows):
            for head in range(self._n_heads if not self._is_assistant else 0):
                self._begin(head)
                self._add_waiting()
                self._decode()
            self._all_taken()

    def propose(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        """Raises ProcessError if rows are missing or the heads fail to decode, DecodeError."""
        if limits.n_max == 0 or n_past == 0:
            return Proposal()
        if self._before is None or self.known != n_past:
            raise ProcessError(
                f"the MTP heads saw {self.known} positions, drafting after position {n_past} needs "
                f"{n_past}"
            )
        started = time.perf_counter()
        chain = self._chain if self._n_heads == 1 else self._chain_of_heads
        proposal = chain(n_past, id_last, limits)
        self._draft_s += time.perf_counter() - started
        return proposal

    def accept(self, path: Sequence[int]) -> None:
        kept = [self._batch_start, *(self._batch_start + 1 + index for index in path)]
        first = max(self._batch_start, 0)
        self._rows.keep_path(first, [row - first for row in kept if row >= first])

    def _chain(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        """Draft token after token with one head, which reads its own state of the one before."""
        if not self._is_merged:
            self.take_in()
        self._begin(0)
        state = self._last_state()
        self._add_waiting()
        self._all_taken()
        row, token, position = len(self._batch), id_last, n_past
        ids: list[int] = []
        probabilities: list[float] = []
        while True:
            self._batch.add_tokens([token], position, _SEQ_ID, output=True, states=state)
            self._decode()
            token, probability = self._likeliest.of(self.heads.logits(row))
            if not limits.keep([*probabilities, probability]):
                break
            ids.append(token)
            probabilities.append(probability)
            if len(ids) == limits.n_max:
                break
            state = self.heads.nextn_state(row).copy()
            self._batch.clear()
            row, position = 0, position if self._is_assistant else position + 1
        return Proposal.chain(ids, probabilities, self.name)

    def _chain_of_heads(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        """Draft a token with each head. A head has a KV cache of its own for the drafted positions,
        so each reads the whole chain so far."""
        self.take_in()
        tokens, states = [id_last], self._last_state()
        ids: list[int] = []
        probabilities: list[float] = []
        for head in range(min(limits.n_max, self._n_heads)):
            self._begin(head)
            last = len(tokens) - 1
            # All rows are outputs: beside rows that are not, llama.cpp exports the state of another
            # row.
            self._batch.add_tokens(tokens, n_past, _SEQ_ID, output=True, states=states)
            self._decode()
            token, probability = self._likeliest.of(self.heads.logits(last))
            if not limits.keep([*probabilities, probability]):
                break
            ids.append(token)
            probabilities.append(probability)
            tokens.append(token)
            states = np.concatenate([states, self.heads.nextn_state(last)])
        return Proposal.chain(ids, probabilities, self.name)

    def _begin(self, head: int) -> None:
        """Start a batch for a head, without what it wrote behind the pairs taken in."""
        if self._n_heads > 1:
            self.heads.choose_head(head)
        if not self._is_assistant:
            self.heads.forget(_SEQ_ID, self._taken)
        self._batch.clear()

    def _add_waiting(self) -> None:
        """Add the waiting pairs: each token with the state of the position before it."""
        if not len(self._rows):
            return
        assert self._before is not None
        states = np.concatenate([self._before, self._rows.features[:-1]])
        self._batch.add_tokens(self._rows.tokens, self._taken, _SEQ_ID, output=False, states=states)

    def _all_taken(self) -> None:
        """No rows wait now."""
        self._before = self._last_state()
        self._taken += len(self._rows)
        self._rows.keep(0)

    def _last_state(self) -> Floats:
        """The state [1, n_embd_out] of the last known position."""
        if len(self._rows):
            last: Floats = self._rows.features[-1:].copy()
            return last
        assert self._before is not None
        return self._before

    def _decode(self) -> None:
        status = self.heads.decode(self._batch)
        if status != 0:
            raise ProcessError(f"the MTP heads failed to decode (llama.cpp status {status})")

    def _no_state(self) -> Floats:
        """What the first position of a text has before it."""
        none: Floats = np.zeros((1, self.heads.model.n_embd_out), dtype=np.float32)
        return none


def open_drafter(opening: Opening) -> MtpDrafter:
    """Make the heads' context and the drafter. Raises ModelLoadError."""
    target, options, owned = opening.target, opening.options, opening.owned
    header = opening.header
    heads = owned.enter_context(
        Context(
            opening.model,
            n_ctx=target.n_ctx,
            n_batch=options.n_batch,
            n_threads=opening.n_threads,
            n_outputs=N_DRAFT_MAX_LIMIT + 1,
            flash_attention=options.flash_attention,
            kv_type=options.draft_kv_type,
            other=target,
            runs_heads=True,
        )
    )
    drafter = MtpDrafter(target, heads, header.n_mtp_heads or 1, header.architecture)
    owned.callback(drafter.close)
    return drafter

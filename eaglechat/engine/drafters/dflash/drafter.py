"""Block drafting over llama.cpp: hidden states of the target in, a block of tokens out.

The algorithm is llama.cpp's `common_speculative_impl_draft_dflash` (common/speculative.cpp) after
DFlash (arXiv 2602.06036). The inputs of some target layers, the features, become keys and values
of the draft's layers at their own position. Then one pass over [last token, MASK, MASK, ...] drafts
all tokens, so a draft of seven costs what a draft of one does. The block's own keys and values are
dropped at once: the features of its tokens come in their place, if the target accepts them.

A draft depends on nothing but the tokens before it. Unlike EAGLE-3's, no row is paired with the
token that follows, so the draft can go on behind any number of positions that it knows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from eaglechat.engine.drafters.base import Limits, Opening, Proposal, Spent, shifted
from eaglechat.engine.drafters.dflash.pairing import Block, block_of
from eaglechat.engine.drafters.likeliest import Likeliest
from eaglechat.engine.drafters.waiting_rows import WaitingRows
from eaglechat.engine.llama.branches import TRUNK
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.wire.errors import ProcessError

_UBATCH = 128
"""Rows of a piece of features. llama.cpp has a row of logits for each, though none is computed."""


class DflashDrafter:
    """Drafts for the trunk of a target context with a context of its own. Both stay the caller's.

    The features of the first `_taken` positions are in the draft's KV cache, those of the positions
    from there on wait.
    """

    grows_trees = False
    in_one_pass = True

    def __init__(self, target: Context, draft: Context, block: Block) -> None:
        """`block` is that of the draft's header, which `pairing.check` has accepted."""
        self.name: str = block.variant
        self._target, self._draft, self._block = target, draft, block
        self.layers = draft.model.target_layers
        """The target layers whose inputs it reads."""
        self._mask = draft.model.mask
        # llama.cpp ends the process if a block or a batch of features is longer than a ubatch, or a
        # block of DFlash2 longer than the trained one.
        self._longest = min(block.longest, draft.n_ubatch - block.first)
        self._rows = WaitingRows(len(self.layers) * target.model.n_embd)
        self._taken = 0
        self._batch_start = 0
        """Index among the waiting rows of the first row of the batch last seen."""
        self._likeliest = Likeliest()
        self._process_s = self._draft_s = 0.0
        self._batch = Batch(draft)
        self._closed = False
        draft.forget(TRUNK, 0)
        draft.attend_causally(block.is_causal)
        if block.variant == "dflash2":
            draft.export_lattices()
        else:
            draft.export_states()
        self.set_export(True)

    def close(self) -> None:
        """Free the batch and stop the export of features; call it before closing the contexts."""
        if self._closed:
            return
        self._closed = True
        self.set_export(False)
        self._batch.close()

    @property
    def known(self) -> int:
        return self._taken + len(self._rows)

    @property
    def waiting(self) -> int:
        return len(self._rows)

    @property
    def longest(self) -> int:
        return self._longest

    @property
    def spent(self) -> Spent:
        return Spent(self._process_s * 1000.0, self._draft_s * 1000.0)

    def set_export(self, enabled: bool) -> None:
        self._target.extract_layer_inputs(self.layers, enabled)

    # --- what the target holds ---

    def resume(self, tokens: Sequence[int], *, to_draft: bool) -> int:
        kept = min(len(tokens), self.known)
        self._rewind(kept)
        return kept

    def _rewind(self, length: int) -> None:
        """Forget the positions from `length` on."""
        self._rows.keep(max(0, length - self._taken))
        self._taken = min(self._taken, length)
        self._draft.forget(TRUNK, self._taken)

    def mark(self) -> object:
        """Nothing but the known positions is needed to go on from here."""
        return ()

    def restore(self, length: int, mark: object) -> None:
        """`resume` does it all."""

    def shift(self, start: int, end: int) -> None:
        if self.known < end or not self._draft.can_shift:
            self._rewind(min(start, self.known))
            return
        self._draft.shift(TRUNK, start, end)
        # Features hold no position, so waiting rows stay as they are.
        self._rows.remove(max(0, start - self._taken), max(0, end - self._taken))
        self._taken = shifted(self._taken, start, end)

    # --- a round ---

    def see(self, batch: Batch) -> None:
        """Keep the features of a batch that the target has just decoded. Raises ProcessError if
        rows are missing before it."""
        started, spent = time.perf_counter(), self._process_s
        if batch.positions[0] != self.known:
            raise ProcessError(
                f"the draft saw {self.known} positions, the batch goes on at {batch.positions[0]}"
            )
        layers = [self._target.layer_inputs(layer, len(batch)) for layer in self.layers]
        # A row is some ten thousand numbers: no more wait than a batch has.
        if len(self._rows) + len(batch) > self._draft.n_batch:
            self.take_in()
        self._batch_start = len(self._rows)
        self._rows.add(batch.tokens, layers, 0)
        # Set, not added to: `take_in` has counted its own time already.
        self._process_s = spent + time.perf_counter() - started

    def take_in(self) -> None:
        """Write the keys and values of all waiting rows. Raises ProcessError, DecodeError."""
        started = time.perf_counter()
        while len(self._rows):
            rows = self._rows.features[: self._draft.n_ubatch]
            self._batch.clear()
            self._batch.add_features(rows, self._taken, TRUNK, output=False)
            self._decode()
            self._taken += len(rows)
            self._rows.remove(0, len(rows))
        self._process_s += time.perf_counter() - started

    def propose(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        """Raises ProcessError if rows are missing or the draft fails to decode, DecodeError."""
        n_max = min(limits.n_max, self._longest)
        if n_max < 1:
            return Proposal()
        if self.known != n_past:
            raise ProcessError(
                f"the draft saw {self.known} positions, drafting after position {n_past} needs "
                f"{n_past}"
            )
        self.take_in()
        started = time.perf_counter()
        self._fill_in(n_past, id_last, n_max)
        ids: list[int] = []
        probabilities: list[float] = []
        for token, probability in islice(self._drafted(), n_max):
            if not limits.keep([*probabilities, probability]):
                break
            ids.append(token)
            probabilities.append(probability)
        self._draft_s += time.perf_counter() - started
        return Proposal.chain(ids, probabilities, self.name)

    def accept(self, path: Sequence[int]) -> None:
        self._rows.keep_path(self._batch_start + 1, path)

    def _fill_in(self, n_past: int, id_last: int, n_max: int) -> None:
        """Decode a block that drafts `n_max` tokens, and drop its keys and values."""
        masks = [self._mask] * (n_max - 1 + self._block.first)
        self._batch.clear()
        # All rows ask for output or none: behind a first row that does not, llama.cpp gives each
        # row the result of the one before.
        output = self._block.variant != "dflash2"
        self._batch.add_tokens([id_last, *masks], n_past, TRUNK, output=output)
        try:
            self._decode()
        finally:
            self._draft.forget(TRUNK, n_past)

    def _drafted(self) -> Iterator[tuple[int, float]]:
        """The tokens of the block just decoded, each with its probability."""
        if self._block.variant == "dflash2":
            yield from self._selected()
            return
        for row in range(self._block.first, len(self._batch)):
            token, probability = self._likeliest.of(self._draft.logits(row))
            if self._block.has_confidence:
                # Copied to the whole width of a state.
                probability = float(self._draft.state(row)[0, 0])
            yield token, probability

    def _selected(self) -> Iterator[tuple[int, float]]:
        """The greedy path through a lattice, each token with its share among the candidates.

        Row i has k candidates for place i, and for each candidate of the row before, as many
        scores: log-odds of each candidate behind that one. The scores of the first place are the
        same in all k groups.
        """
        k = self._draft.model.selector_top_k
        chosen = 0
        for row in self._draft.states(len(self._batch))[1:]:
            scores = row[k * (1 + chosen) : k * (2 + chosen)]
            chosen = int(scores.argmax())
            odds = np.exp(scores - scores[chosen])
            yield int(row[chosen]), float(1.0 / odds.sum())

    def _decode(self) -> None:
        status = self._draft.decode(self._batch)
        if status != 0:
            raise ProcessError(f"the draft failed to decode (llama.cpp status {status})")


def open_drafter(opening: Opening) -> DflashDrafter:
    """Make the draft's context and the drafter. Raises ModelLoadError."""
    target, options, owned = opening.target, opening.options, opening.owned
    draft = owned.enter_context(
        Context(
            opening.model,
            n_ctx=target.n_ctx,
            n_batch=options.n_batch,
            n_ubatch=_UBATCH,
            n_threads=opening.n_threads,
            flash_attention=options.flash_attention,
            kv_type=options.draft_kv_type,
            other=target,
        )
    )
    drafter = DflashDrafter(target, draft, block_of(opening.header))
    owned.callback(drafter.close)
    return drafter

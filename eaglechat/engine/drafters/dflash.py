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

import numpy as np

from eaglechat.engine.drafters.base import Drafter, Likeliest, Opening, decode
from eaglechat.engine.drafters.proposal import Drafting, Limits, Proposal
from eaglechat.engine.llama.objects import TRUNK, Context
from eaglechat.gguf.pairing import Block, block_of
from eaglechat.wire.records import ms_since

_UBATCH = 128
"""Rows of a piece of features. llama.cpp has a row of logits for each, though none is computed."""


class DflashDrafter(Drafter):
    """Drafts for the trunk of a target context with a context of its own. A row has the features
    of a position."""

    in_one_pass = True

    def __init__(self, target: Context, draft: Context, block: Block) -> None:
        """`block` is that of the draft's header, which `pairing` has accepted."""
        self.name: str = block.variant
        super().__init__(target, draft, len(draft.model.target_layers) * target.model.n_embd)
        self._block = block
        self._mask = draft.model.mask
        # llama.cpp ends the process if a block or a batch of features is longer than a ubatch, or a
        # block of DFlash2 longer than the trained one.
        self._longest = min(block.longest, draft.n_ubatch - block.first)
        self._likeliest = Likeliest()
        draft.forget(TRUNK, 0)
        draft.attend_causally(block.is_causal)
        if block.variant == "dflash2":
            draft.export_states(of_outputs=False)
        else:
            draft.export_states()
        self.set_export(True)

    @property
    def longest(self) -> int:
        return self._longest

    # --- a round ---

    def take_in(self) -> None:
        started = time.perf_counter()
        while len(self._rows):
            rows = self._rows.features[: self.draft.n_ubatch]
            self._batch.clear()
            self._batch.add_features(rows, self._taken, TRUNK, output=False)
            decode(self.draft, self._batch)
            self._taken += len(rows)
            self._rows.remove(0, len(rows))
        self.process_ms += ms_since(started)

    def _draft(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        self.take_in()
        self._fill_in(n_past, id_last, min(limits.n_max, self._longest))
        return limits.chain(self._drafting(), self.name)

    def _fill_in(self, n_past: int, id_last: int, n_max: int) -> None:
        """Decode a block that drafts `n_max` tokens, and drop its keys and values."""
        masks = [self._mask] * (n_max - 1 + self._block.first)
        self._batch.clear()
        # All rows ask for output or none: behind a first row that does not, llama.cpp gives each
        # row the result of the one before.
        output = self._block.variant != "dflash2"
        self._batch.add_tokens([id_last, *masks], n_past, TRUNK, output=output)
        try:
            decode(self.draft, self._batch)
        finally:
            self.draft.forget(TRUNK, n_past)

    def _drafting(self) -> Drafting:
        """The places of the block just decoded."""
        if self._block.variant == "dflash2":
            yield from self._selected()
            return
        for row in range(self._block.first, len(self._batch)):
            likeliest = self._likeliest.top_k(self.draft.logits(row))
            if self._block.has_confidence:
                (first, share), *others = likeliest
                # That of the likeliest token; copied to the whole width of a state.
                confidence = float(self.draft.state(row)[0, 0])
                scale = (1.0 - confidence) / (1.0 - share) if share < 1.0 else 1.0
                likeliest = [(first, confidence), *((id, scale * share) for id, share in others)]
            yield likeliest

    def _selected(self) -> Drafting:
        """A path through a lattice; the probabilities are shares among the candidates.

        Row i has k candidates for place i, and for each candidate of the row before, as many
        scores: log-odds of each candidate behind that one. The scores of the first place are the
        same in all k groups.
        """
        k = self.draft.model.selector_top_k
        chosen = 0
        for row in self.draft.states(len(self._batch))[1:]:
            scores = row[k * (1 + chosen) : k * (2 + chosen)]
            odds = np.exp(scores - scores.max())
            order = np.argsort(-scores, kind="stable")
            ids, shares = row[order].astype(int).tolist(), (odds / odds.sum())[order].tolist()
            token = yield list(zip(ids, shares, strict=True))
            chosen = int(order[ids.index(token)])


def open_drafter(opening: Opening) -> DflashDrafter:
    """Raises ModelLoadError."""
    draft = opening.context(n_ubatch=_UBATCH, other=opening.target)
    return DflashDrafter(opening.target, draft, block_of(opening.header))

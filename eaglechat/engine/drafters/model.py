"""Drafting with a smaller model of the same vocabulary, which has a context of its own.

The algorithm is llama.cpp's `common_speculative_impl_draft_simple` (common/speculative.cpp), after
Leviathan et al. (arXiv 2211.17192): the model writes on by itself, token after token. It reads
nothing of the target but its tokens.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from eaglechat.engine.drafters.base import Drafter, Likeliest, Opening, decode
from eaglechat.engine.drafters.proposal import Drafting, Limits, Proposal
from eaglechat.engine.llama.objects import TRUNK, Context
from eaglechat.engine.sequences import common_prefix
from eaglechat.wire.errors import ModelLoadError
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, ms_since


class ModelDrafter(Drafter):
    """Drafts chains. A row is a token alone. Behind the `_taken` positions, the model's KV cache
    has `_ahead`: the last token and what was drafted behind it.
    """

    name = "model"

    def __init__(self, target: Context, draft: Context) -> None:
        super().__init__(target, draft, width=0)
        # A row is one number, so all may wait.
        self._most_waiting = draft.n_ctx
        self._likeliest = Likeliest()
        self._ahead: list[int] = []

    @property
    def longest(self) -> int:
        return N_DRAFT_MAX_LIMIT if self.known else 0

    # --- what the target holds ---

    def resume(self, tokens: Sequence[int]) -> int:
        """The target need not decode anything again: the tokens that it has not seen wait."""
        super().resume(tokens)
        self._rows.add(tokens[self.known :], [], 0)
        return len(tokens)

    def shift(self, start: int, end: int) -> None:
        self._settle(0)
        super().shift(start, end)

    def _rewind(self, length: int) -> None:
        super()._rewind(length)
        self._ahead = []

    def _settle(self, n_right: int) -> None:
        """Of what was drafted ahead, the first `n_right` tokens are the first that wait: only these
        stay in the KV cache."""
        self._ahead = []
        self._taken += n_right
        self._rows.remove(0, n_right)
        self._kv.forget(self._taken)

    # --- a round ---

    def take_in(self) -> None:
        started = time.perf_counter()
        self._take_in(0)
        self.process_ms += ms_since(started)

    def _take_in(self, n_left: int) -> None:
        """Write the waiting tokens into the KV cache until at most `n_left` wait."""
        if self._ahead:
            self._settle(0)
        while self.waiting > n_left:
            chunk = self._rows.tokens[: self.draft.n_batch]
            self._batch.clear()
            self._batch.add_tokens(chunk, self._taken, TRUNK, output=False)
            decode(self.draft, self._batch)
            self._taken += len(chunk)
            self._rows.remove(0, len(chunk))

    def _draft(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        self._take_in(self.draft.n_batch - 1)
        return limits.chain(self._drafting(n_past, id_last), self.name)

    def _drafting(self, n_past: int, token: int) -> Drafting:
        """Place after place behind `token`."""
        self._batch.clear()
        # What a round accepted behind the last draft goes with the first step.
        self._batch.add_tokens(self._rows.tokens, self._taken, TRUNK, output=False)
        n_vocab = self._target.model.n_vocab
        while True:
            row = len(self._batch)
            self._batch.add_tokens([token], n_past + len(self._ahead), TRUNK, output=True)
            decode(self.draft, self._batch)
            self._taken = n_past
            self._rows.keep(0)
            self._ahead.append(token)
            # The draft's vocabulary may be larger.
            token = yield self._likeliest.top_k(self.draft.logits(row)[:n_vocab])
            self._batch.clear()

    def accept(self, path: Sequence[int]) -> None:
        super().accept(path)
        if self._ahead:
            self._settle(common_prefix(self._ahead, self._rows.tokens))


def open_drafter(opening: Opening) -> ModelDrafter:
    """Raises ModelLoadError."""
    if not opening.model.keeps_whole_history:
        raise ModelLoadError(
            f"{opening.header.path.name} is a recurrent or hybrid model: its state cannot take "
            "back rejected tokens, so it cannot draft"
        )
    return ModelDrafter(opening.target, opening.context())

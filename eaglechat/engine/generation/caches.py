"""What the KV caches of target and draft hold of a conversation, in step with each other."""

from __future__ import annotations

from collections.abc import Sequence

from eaglechat.engine.drafters.base import Drafter
from eaglechat.engine.generation.window import common_prefix, find_cut
from eaglechat.engine.llama.objects import Context

SEQ = 0
"""The one sequence there is."""


class Caches:
    """The caches of one conversation; `tokens` are those whose KV the target holds.

    The draft holds as many, or has their features waiting, unless `extracting` is off.
    """

    def __init__(self, target: Context, drafter: Drafter | None) -> None:
        self._target = target
        self._drafter = drafter
        self.tokens: list[int] = []
        self.can_shift = target.can_shift
        self.extracting = drafter is not None

    def shift(self, before: Sequence[int], after: Sequence[int]) -> bool:
        """Take the turns that have left out of both KV caches, keeping what was behind them.

        False where the rest has to be read again.
        """
        cut = find_cut(before, after) if self.can_shift else None
        held = common_prefix(self.tokens, before)
        if cut is None or held <= cut.end:
            return False
        if held < len(before):
            self.rewind(held)
        self._target.shift(SEQ, cut.start, cut.end)
        if self._drafter is not None:
            self._drafter.shift(cut.start, cut.end)
        del self.tokens[cut.start : cut.end]
        return True

    def reusable(self, tokens: Sequence[int], *, will_draft: bool) -> int:
        """How many positions both caches can keep: the common prefix, less what the drafter must
        see again. It forgets what it knows of the rest."""
        common = common_prefix(self.tokens, tokens)
        drafter = self._drafter
        if drafter is None or (not self.extracting and drafter.known <= common):
            return common
        kept = drafter.resume(tokens[:common], to_draft=will_draft)
        return kept if self.extracting else common

    def rewind(self, length: int) -> int:
        """Drop all positions from `length` on; the length that was really kept."""
        if length < len(self.tokens) and self._target.n_rollback is not None:
            # A recurrent state has snapshots of its latest batch only: start over.
            length = 0
        self._target.forget(SEQ, length)
        del self.tokens[length:]
        if self._drafter is not None and length < self._drafter.known:
            self._drafter.resume(self.tokens, to_draft=False)
        return length

    def switch_extraction(self, enabled: bool) -> None:
        if self._drafter is not None and enabled != self.extracting:
            self._drafter.listen(enabled)
            self.extracting = enabled

"""What the KV caches of target and draft hold of a conversation, in step with each other."""

from __future__ import annotations

from collections.abc import Sequence

from eaglechat.engine.drafters.eagle3.session import Eagle3Session
from eaglechat.engine.generation.window import common_prefix, find_cut
from eaglechat.engine.llama.objects import Context

SEQ = 0
"""The one sequence there is."""


class Caches:
    """The caches of one conversation; `tokens` are those whose KV the target holds.

    The draft holds as many, or has their features waiting, unless `extracting` is off.
    """

    def __init__(self, target: Context, session: Eagle3Session | None) -> None:
        self._target = target
        self._session = session
        self.tokens: list[int] = []
        self.can_shift = target.can_shift and (session is None or session.can_shift)
        self.extracting = session is not None

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
        if self._session is not None:
            self._session.shift(SEQ, cut.start, cut.end)
        del self.tokens[cut.start : cut.end]
        return True

    def reusable(self, tokens: Sequence[int], *, will_draft: bool) -> int:
        """How many positions both caches can keep: the common prefix, less one token where the
        cache went on differently, and less what a draft that comes next must see again.

        That token is decoded again, because the draft's row before it is paired with it, and
        drafting starts from its features.
        """
        common = common_prefix(self.tokens, tokens)
        if self._session is None:
            return common
        known = self._session.known_length(SEQ)
        if not (common == len(self.tokens) == known and self._session.waiting(SEQ)):
            common = max((min(common, known) if self.extracting else common) - 1, 0)
        return self._session.resumable(SEQ, common) if will_draft else common

    def rewind(self, length: int) -> int:
        """Drop all positions from `length` on; the length that was really kept."""
        if length < len(self.tokens) and self._target.n_rollback is not None:
            # A recurrent state has snapshots of its latest batch only: start over.
            length = 0
        self._target.forget(SEQ, length)
        del self.tokens[length:]
        if self._session is not None:
            self._session.rewind(SEQ, min(length, self._session.known_length(SEQ)))
        return length

    def switch_extraction(self, enabled: bool) -> None:
        if self._session is not None and enabled != self.extracting:
            self._session.set_extraction(enabled)
            self.extracting = enabled

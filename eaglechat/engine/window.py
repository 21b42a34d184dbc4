"""Which part of a conversation is in the context. When the context is full, the oldest turns leave
it.

Turns leave whole. The chat template says what a turn is and how the prompt reads without it; this
file only counts and compares tokens. The last turn, the one being answered, never leaves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from eaglechat.engine.drafters.base import common_prefix

_ROOM = 8
"""A reply begins with at least 1/8 of the context free, or with room for all it may write."""
_FREED, _FREED_TO_READ_AGAIN = 4, 2
"""Turns leave until 1/4 of the context is free, or 1/2 if what remains has to be decoded again each
time."""


class PromptTurns(Protocol):
    """The turns of a conversation, as the chat template renders them."""

    @property
    def count(self) -> int:
        """The number of turns, the one to be answered included."""

    def without(self, n: int) -> Sequence[int]:
        """The prompt's tokens without its first `n` turns."""


@dataclass(frozen=True)
class Cut:
    """Positions `start` to `end` - 1, which are to be removed."""

    start: int
    end: int


class ContextWindow:
    """The part of one conversation that is in the context. Turns that have left do not come
    back."""

    def __init__(
        self, prompt: Sequence[int], turns: PromptTurns | None, n_ctx: int, *, can_shift: bool
    ) -> None:
        self._prompt = prompt
        self._turns = turns
        self._n_ctx = n_ctx
        self._freed = n_ctx // (_FREED if can_shift else _FREED_TO_READ_AGAIN)
        self.first_turn = 0
        self.tokens = prompt
        """The prompt's tokens without the turns that have left."""

    @property
    def tokens_dropped(self) -> int:
        """The number of tokens of the turns that have left."""
        return len(self._prompt) - len(self.tokens)

    def has_room(self, tokens: int) -> bool:
        """Whether there is room for a reply of this many tokens, or at least for 1/8 of the
        context."""
        return len(self.tokens) + min(tokens, self._n_ctx // _ROOM) <= self._n_ctx

    def fit(self, tokens: int, first_turn: int, cached: Sequence[int]) -> Sequence[int]:
        """Have turns leave until there is room for a reply of this many tokens.

        The KV cache holds the tokens `cached`, which begin with turn `first_turn`. If they are of
        this conversation, the turns before that one leave first: what left before an earlier reply
        stays away. Returns the tokens before any other turn left, which the KV cache may hold.
        """
        if not self.has_room(tokens):
            self.begin_where_held(first_turn, cached)
        before = self.tokens
        if not self.has_room(tokens):
            self.move()
        return before

    def begin_where_held(self, first_turn: int, cached: Sequence[int]) -> None:
        """Begin at `first_turn`, where the KV cache begins, if most of what it holds is this
        conversation."""
        if self._turns is not None and 0 < first_turn < self._turns.count:
            tokens = self._turns.without(first_turn)
            if 2 * common_prefix(cached, tokens) > len(cached):
                self.first_turn, self.tokens = first_turn, tokens

    def move(self, n_written: int = 0) -> bool:
        """Have the oldest turns leave until enough of the context is free behind the prompt and
        `n_written` tokens of a reply. False if only the last turn is left."""
        turns = self._turns
        if turns is None or self.first_turn >= turns.count - 1:
            return False
        wanted = self._n_ctx - self._freed - n_written
        candidates = range(self.first_turn + 1, turns.count - 1)
        index = bisect_left(candidates, True, key=lambda n: len(turns.without(n)) <= wanted)
        first_turn = self.first_turn + 1 + index
        self.first_turn, self.tokens = first_turn, turns.without(first_turn)
        return True


def find_cut(before: Sequence[int], after: Sequence[int]) -> Cut | None:
    """The positions that `before` has and `after` lacks, if that is their only difference.

    Turns begin alike, so the cut may begin at several positions. The last but one is taken: there,
    the first removed token is the same as the token behind the cut. The draft has paired its row
    before the cut with that token.
    """
    starts = cut_starts(before, after)
    if not starts:
        return None
    start = starts[-2] if len(starts) > 1 else starts[-1]
    return Cut(start, start + len(before) - len(after))


def cut_starts(before: Sequence[int], after: Sequence[int]) -> range:
    """The positions, ascending, where a cut may begin that turns `before` into `after`."""
    if len(before) <= len(after):
        return range(0)
    alike_behind = common_prefix(before[::-1], after[::-1])
    return range(len(after) - alike_behind, common_prefix(before, after) + 1)

"""Which part of a conversation is in the context. When the context is full, the oldest turns leave
it.

Turns leave whole. The chat template says what a turn is and how the prompt reads without it; this
file only counts and compares tokens. The last turn, the one being answered, never leaves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from eaglechat.engine.prompt import Asked
from eaglechat.engine.sequences import common_prefix

_ROOM = 8
"""A reply begins with at least 1/8 of the context free, or with room for all it may write."""
_FREED, _FREED_TO_READ_AGAIN = 4, 2
"""Turns leave until 1/4 of the context is free, or 1/2 if what remains has to be decoded again each
time."""


class ContextWindow:
    """The part of one conversation that is in the context. Turns that have left do not come
    back."""

    def __init__(self, asked: Asked, n_ctx: int, *, can_shift: bool) -> None:
        self._asked = asked
        self._n_ctx = n_ctx
        self._freed = n_ctx // (_FREED if can_shift else _FREED_TO_READ_AGAIN)
        self.first_turn = 0
        self.tokens: Sequence[int] = asked.tokens
        """The prompt's tokens without the turns that have left."""

    @property
    def tokens_dropped(self) -> int:
        return len(self._asked.tokens) - len(self.tokens)

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
        if not self.has_room(tokens) and 0 < first_turn < self._asked.count:
            held = self._asked.without(first_turn)
            if 2 * common_prefix(cached, held) > len(cached):
                self.first_turn, self.tokens = first_turn, held
        before = self.tokens
        if not self.has_room(tokens):
            self.move()
        return before

    def move(self, n_written: int = 0) -> bool:
        """Have the oldest turns leave until enough of the context is free behind the prompt and
        `n_written` tokens of a reply. False if only the last turn is left."""
        asked = self._asked
        if self.first_turn >= asked.count - 1:
            return False
        wanted = self._n_ctx - self._freed - n_written
        candidates = range(self.first_turn + 1, asked.count - 1)
        index = bisect_left(candidates, True, key=lambda n: len(asked.without(n)) <= wanted)
        first_turn = self.first_turn + 1 + index
        self.first_turn, self.tokens = first_turn, asked.without(first_turn)
        return True

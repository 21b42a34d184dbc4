"""Which part of a conversation is in the context: when it is full, its oldest turns leave whole.

What a turn is and what the prompt looks like without it, the chat template says; here it is
only counted and compared. The last turn, the one being answered, never leaves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

_ROOM = 8
"""A reply begins with one part in so many of the context free, or with all it may write."""
_FREED, _FREED_TO_READ_AGAIN = 4, 2
"""When turns leave, they leave until one part in so many is free: more, where all that remains
has to be read again each time."""


class Turns(Protocol):
    """The turns of a conversation, as the chat template renders them."""

    @property
    def count(self) -> int:
        """How many there are, with the one to be answered."""

    def without(self, n: int) -> Sequence[int]:
        """The prompt's tokens without its first `n` turns."""


@dataclass(frozen=True)
class Cut:
    """A stretch of positions to take out: from `start` up to `end`."""

    start: int
    end: int


class ContextWindow:
    """The part of one conversation that is in the context. It only ever moves on."""

    def __init__(
        self, prompt: Sequence[int], turns: Turns | None, n_ctx: int, *, can_shift: bool
    ) -> None:
        self._prompt = prompt
        self._turns = turns
        self._n_ctx = n_ctx
        self._freed = n_ctx // (_FREED if can_shift else _FREED_TO_READ_AGAIN)
        self.first_turn = 0
        self.tokens = prompt
        """The prompt without the turns that have left."""

    @property
    def tokens_left(self) -> int:
        """Tokens of the turns that have left."""
        return len(self._prompt) - len(self.tokens)

    def has_room(self, tokens: int) -> bool:
        """Whether a reply of so many tokens can begin, or one of a fair length."""
        return len(self.tokens) + min(tokens, self._n_ctx // _ROOM) <= self._n_ctx

    def begin_where_held(self, first_turn: int, cached: Sequence[int]) -> None:
        """Begin at `first_turn`, with which the KV cache was filled, if it was this conversation:
        turns that have left do not come back."""
        left = ContextWindow(self._prompt, self._turns, self._n_ctx, can_shift=False)
        left.begin_at(first_turn)
        if 2 * common_prefix(cached, left.tokens) > len(cached):
            self.first_turn, self.tokens = left.first_turn, left.tokens

    def begin_at(self, first_turn: int) -> None:
        """Let the turns before this one leave, where there are as many."""
        if self._turns is not None and 0 < first_turn < self._turns.count:
            self.first_turn, self.tokens = first_turn, self._turns.without(first_turn)

    def move(self, n_written: int = 0) -> bool:
        """Let the oldest turns leave until a good part of the context is free, with `n_written`
        tokens of a reply behind the prompt. False where only the last turn is left."""
        turns = self._turns
        if turns is None or self.first_turn >= turns.count - 1:
            return False
        wanted = self._n_ctx - self._freed - n_written
        candidates = range(self.first_turn + 1, turns.count - 1)
        index = bisect_left(candidates, True, key=lambda n: len(turns.without(n)) <= wanted)
        self.begin_at(self.first_turn + 1 + index)
        return True


def find_cut(before: Sequence[int], after: Sequence[int]) -> Cut | None:
    """The stretch that `before` has and `after` lacks, if that is their only difference.

    Turns begin alike, so there is a choice: the cut begins late, but where the token at its start
    is also the one at its end, which keeps the draft's row before it paired with the right token.
    """
    starts = cut_starts(before, after)
    if not starts:
        return None
    start = starts[-2] if len(starts) > 1 else starts[-1]
    return Cut(start, start + len(before) - len(after))


def cut_starts(before: Sequence[int], after: Sequence[int]) -> range:
    """Where a cut may begin that makes `after` of `before`, earliest first; empty if nowhere."""
    if len(before) <= len(after):
        return range(0)
    alike_behind = common_prefix(before[::-1], after[::-1])
    return range(len(after) - alike_behind, common_prefix(before, after) + 1)


def common_prefix(one: Sequence[int | None], other: Sequence[int | None]) -> int:
    """How many elements two sequences begin with in common."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))

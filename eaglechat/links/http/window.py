"""Which turns of a long chat are sent to a server: when they outgrow its context, the oldest are
left out, as eaglechat's own engine does.

If the server can count a prompt, they are left out before it is asked; else after it refuses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from eaglechat.wire.protocol import Message
from eaglechat.wire.records import Window

_ROOM = 8
"""A reply needs 1/8 of the context free, or max_tokens if that is less."""
_FREED = 2
"""Turns are left out until 1/2 of the context is free: the server has to read the rest again, so it
should not happen often."""
_TEMPLATE_TOKENS = 512
_MESSAGE_TOKENS = 32
"""Upper bounds for what a template writes around a conversation and around each message."""

Count = Callable[[Sequence[Message]], Awaitable[int]]
"""Asks the server how many tokens a conversation has."""


class ServerWindow:
    """The part of one conversation that is sent: from turn `first_turn` on, which only grows."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = tuple(messages)
        self._starts = [i for i, message in enumerate(messages) if message.role == "user"]
        self.first_turn = 0
        self.tokens_left: int | None = None

    @property
    def window(self) -> Window:
        return Window(self.first_turn, self.tokens_left if self.first_turn else 0, kv_kept=False)

    @property
    def sent(self) -> tuple[Message, ...]:
        return self._without(self.first_turn)

    @property
    def left(self) -> tuple[Message, ...]:
        """The turns that are left out; the system prompt before them is always sent."""
        if not self._starts:
            return ()
        return self._messages[self._starts[0] : self._starts[self.first_turn]]

    async def fit(
        self, count: Count, n_ctx: int, wanted: int | None, before: tuple[Message, ...]
    ) -> None:
        """Leave out the oldest turns until a reply of `wanted` tokens has room, or of 1/8 of the
        context if that is less. The turns that were left out `before` are tried first.

        Raises what `count` raises.
        """
        room = min(wanted or n_ctx, n_ctx // _ROOM)
        # No tokenizer makes more tokens than there are bytes.
        most = _length(self._messages) + len(self._messages) * _MESSAGE_TOKENS + _TEMPLATE_TOKENS
        if most + room <= n_ctx:
            return
        whole = tokens = await count(self.sent)
        if tokens + room <= n_ctx:
            return
        if self.begin_behind(before):
            tokens = await count(self.sent)
        if tokens + room > n_ctx:
            tokens = await self._move(count, n_ctx - n_ctx // _FREED)
        self.tokens_left = whole - tokens

    def begin_behind(self, left: tuple[Message, ...]) -> bool:
        """Leave out these turns if the conversation begins with them; returns whether it does."""
        n = sum(message.role == "user" for message in left)
        if not 0 < n < len(self._starts):
            return False
        before, self.first_turn = self.first_turn, n
        if self.left != left:
            self.first_turn = before
            return False
        return True

    def halve(self) -> bool:
        """Leave out turns until half of the text is left; returns False if only one turn is
        left."""
        last = len(self._starts) - 1
        if self.first_turn >= last:
            return False
        most = _length(self.sent) // 2
        while self.first_turn < last:
            self.first_turn += 1
            if _length(self.sent) <= most:
                break
        return True

    async def _move(self, count: Count, most: int) -> int:
        low, high = self.first_turn, max(len(self._starts) - 1, 0)
        tokens = await count(self._without(high))
        while low + 1 < high:
            middle = (low + high) // 2
            if (there := await count(self._without(middle))) <= most:
                high, tokens = middle, there
            else:
                low = middle
        self.first_turn = high
        return tokens

    def _without(self, n: int) -> tuple[Message, ...]:
        if not n:
            return self._messages
        return (*self._messages[: self._starts[0]], *self._messages[self._starts[n] :])


def _length(messages: Sequence[Message]) -> int:
    """Length of the texts in bytes of UTF-8."""
    return sum(len(one.content.encode()) + len(one.reasoning.encode()) for one in messages)

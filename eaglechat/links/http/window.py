"""Which turns of a long chat are sent to a server: the oldest are left out where they would outgrow
its context, as the last reply's count of tokens tells, or after the server refuses the prompt."""

from __future__ import annotations

from collections.abc import Sequence

from eaglechat.wire.protocol import Message
from eaglechat.wire.records import ReplyEnd, Window

_ROOM = 8
"""A reply needs 1/8 of the context free, or max_tokens if that is less."""
_BYTES_A_TOKEN = 3
"""Of what has not been counted yet, such as the new question."""


class ServerWindow:
    """The part of a conversation that is sent: from turn `first_turn` on, which only grows. Turns
    that were left out of the last request stay away."""

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._messages = tuple(messages)
        self._starts = [i for i, message in enumerate(messages) if message.role == "user"]
        self.first_turn = 0
        self.prompt_tokens = self.reply_tokens = 0
        """Those of the answer; 0 if there is none, or the server did not count them."""

    @property
    def window(self) -> Window:
        return Window(self.first_turn, None if self.first_turn else 0, kv_kept=False)

    @property
    def sent(self) -> tuple[Message, ...]:
        return (*self._messages[: self._start(0)], *self._messages[self._start(self.first_turn) :])

    @property
    def left_out(self) -> tuple[Message, ...]:
        """The turns that are left out; the system prompt before them is always sent."""
        return self._messages[self._start(0) : self._start(self.first_turn)]

    def answered(self, end: ReplyEnd) -> None:
        self.prompt_tokens = end.timings.prefill_tokens + end.timings.reused_tokens
        self.reply_tokens = end.tokens

    def follow(self, before: ServerWindow, n_ctx: int, max_tokens: int | None) -> None:
        """Leave out what the last request that was answered left out, and more turns while a reply
        would have no room in a context of `n_ctx` tokens; 0: that is not known, and the server
        refuses what is too long."""
        self.first_turn = before.first_turn
        if self.first_turn >= len(self._starts) or self.left_out != before.left_out:
            self.first_turn = 0
        n_known = len(before.sent)
        if not (n_ctx and before.prompt_tokens) or self.sent[:n_known] != before.sent:
            return
        known, new = before.prompt_tokens, self.sent[n_known:]
        if new and new[0].role == "assistant":
            known, new = known + before.reply_tokens, new[1:]
        room = min(max_tokens or n_ctx, n_ctx // _ROOM) + _size(new) / _BYTES_A_TOKEN
        a_byte = known / max(1, _size(self.sent) - _size(new))
        while a_byte * (_size(self.sent) - _size(new)) + room > n_ctx and self.halve():
            pass

    def halve(self) -> bool:
        """Leave out turns until half of the text is left; returns False if only one turn is
        left."""
        last = len(self._starts) - 1
        if self.first_turn >= last:
            return False
        most = _size(self.sent) // 2
        while self.first_turn < last:
            self.first_turn += 1
            if _size(self.sent) <= most:
                break
        return True

    def _start(self, turn: int) -> int:
        """The index of the turn's first message; of an empty conversation, its end."""
        return self._starts[turn] if self._starts else len(self._messages)


def _size(messages: Sequence[Message]) -> int:
    """Length of the texts in bytes of UTF-8."""
    return sum(len(one.content.encode()) + len(one.reasoning.encode()) for one in messages)

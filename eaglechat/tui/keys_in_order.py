"""Keys that come faster than screens open and close go where they would have gone at leisure.

Without this, what is typed as soon as a resumed chat is drawn is lost (28 of 29 keys in
tests/terminal/test_day.py), as are six of six keys typed at once behind the leader's two.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.message_pump import MessagePump
from textual.widgets import Input, TextArea

PATIENCE_S = 2.0
"""The most seconds that a key waits for the one before it."""


class KeysInOrder(App[None]):
    """An app that takes a key or a paste when all that the one before it caused is done.

    Textual sends each at once to the screen on top, which may be about to close, or may have no
    focus yet. Letters of a text do not wait for each other: their field takes them in order.
    """

    def __init__(self, *args: Any, **names: Any) -> None:
        super().__init__(*args, **names)
        self._typed: deque[events.Event] = deque()
        """Keys and pastes that are not done; the first one is under way."""
        self._is_text = False
        """Whether the first one is a letter for a text field."""
        self._taken_at = 0.0
        self._asked: DOMNode | None = None
        """The widget or screen whose queue was last waited for, at the end of the way."""

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        self._typed.append(event)
        if len(self._typed) == 1:
            await self._take()
        elif self._goes_on_text or time.monotonic() - self._taken_at > PATIENCE_S:
            await self._take_next()

    @property
    def is_taking_keys(self) -> bool:
        """Whether a key is not done yet."""
        return bool(self._typed) and self.is_running and not self._exit

    @property
    def _here(self) -> DOMNode:
        """The widget or screen that gets keys now."""
        return self.focused or self.screen

    def _is_letter(self, key: events.Event) -> bool:
        is_typed = isinstance(key, events.Key) and key.is_printable
        return is_typed and isinstance(self.focused, Input | TextArea)

    @property
    def _goes_on_text(self) -> bool:
        return self._is_text and len(self._typed) > 1 and self._is_letter(self._typed[1])

    async def _take(self) -> None:
        self._taken_at, self._asked = time.monotonic(), None
        key, way = self._typed[0], self._here.ancestors_with_self
        self._is_text = self._is_letter(key)
        await super().on_event(key)
        while self._goes_on_text:
            self._typed.popleft()
            key = self._typed[0]
            await super().on_event(key)
        await self._follow(key, way)

    async def _take_next(self) -> None:
        self._typed.popleft()
        if self._typed:
            await self._take()

    async def _follow(self, key: events.Event, way: Sequence[MessagePump]) -> None:
        """Wait in the queue of each of these, then in those of whatever gets keys by then. Then
        the next key is taken."""
        if not self._typed or key is not self._typed[0]:
            return
        for place, pump in enumerate(way, 1):
            if pump.call_later(self._follow, key, way[place:]):
                return
        if way:
            # Not even the app takes messages: it ends.
            return
        # Callbacks of the key may run only when no message is left.
        is_quiet = not (self.message_queue_size or self._next_callbacks)
        if is_quiet and self._asked is self._here:
            await self._take_next()
        else:
            self._asked = self._here
            await self._follow(key, self._asked.ancestors_with_self)

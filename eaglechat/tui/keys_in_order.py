"""Keys that are typed faster than screens open and close go where slower keys would have gone.

Without this, 28 of 29 keys typed as soon as a resumed chat is drawn are lost
(tests/terminal/test_day.py), and so are six of six keys typed right after the two keys of a leader
command.
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
"""The most seconds that a key waits for the one before it to be done."""


class KeysInOrder(App[None]):
    """An app that handles a key or a paste only when everything the one before it caused is done.

    Textual sends each key at once to the screen on top, which may be about to close, or may have no
    focus yet. Letters typed into a text field do not wait for each other: the field handles them in
    order.
    """

    def __init__(self, *args: Any, **names: Any) -> None:
        super().__init__(*args, **names)
        self._typed: deque[events.Event] = deque()
        """Keys and pastes that are not done; the first one is being handled."""
        self._is_text = False
        """Whether the first one is a letter for a text field."""
        self._taken_at = 0.0
        self._asked: DOMNode | None = None
        """The widget or screen that had the keys when `follow_key` last reached the app."""

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
        """Whether any key or paste is not done yet."""
        return bool(self._typed) and self.is_running and not self._exit

    @property
    def _here(self) -> DOMNode:
        """The widget or screen that receives keys now."""
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
        await self.follow_key(key, way)

    async def _take_next(self) -> None:
        self._typed.popleft()
        if self._typed:
            await self._take()

    async def follow_key(self, key: events.Event, way: Sequence[MessagePump]) -> None:
        """Wait until everything that a key caused is done, then take the next key.

        It waits in the message queue of each of `way`, a widget and its ancestors up to the app. It
        then does the same for the widget that receives keys by then, until that is the same widget
        twice and the app has nothing left to do.
        """
        if not self._typed or key is not self._typed[0]:
            return
        for place, pump in enumerate(way, 1):
            if pump.call_later(self.follow_key, key, way[place:]):
                return
        if way:
            # Not even the app accepts messages: it is closing.
            return
        # Callbacks that the key scheduled run only when no message is left.
        is_quiet = not (self.message_queue_size or self._next_callbacks)
        if is_quiet and self._asked is self._here:
            await self._take_next()
        else:
            self._asked = self._here
            await self.follow_key(key, self._asked.ancestors_with_self)

"""Work in threads that waits for the network or the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from textual.message import Message
from textual.screen import Screen


def in_background(screen: Screen[Any], messages: Callable[[], Iterable[Message]]) -> None:
    """Run `messages` in a thread and post what it yields to the screen while that is open.

    The thread is a daemon, unlike Textual's workers: quitting does not wait for the network.
    """

    def run() -> None:
        try:
            for message in messages():
                if not screen.is_running:
                    return
                post(screen.post_message, message)
        except Exception as bug:
            # An exception ends the app, as in Textual's workers.
            post(screen.app.call_later, _raise, bug)

    def post(call: Callable[..., object], *values: object) -> None:
        with suppress(RuntimeError):  # the app ended meanwhile
            call(*values)

    threading.Thread(target=run, name="background", daemon=True).start()


def _raise(bug: Exception) -> None:
    raise bug

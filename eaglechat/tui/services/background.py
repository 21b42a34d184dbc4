"""Work in threads that waits for the network or the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from textual.screen import Screen

Update = Callable[[], object]
"""Hands a result to a screen. It runs in the thread of the app, which alone touches widgets."""


def in_background(screen: Screen[Any], work: Callable[[], Iterable[Update]]) -> None:
    """Run `work` in a thread. The screen calls each update that it yields, unless it has closed.

    The thread is a daemon, unlike Textual's workers: quitting does not wait for a network that does
    not answer.
    """

    def run() -> None:
        try:
            for update in work():
                if not screen.is_running:
                    return
                post(screen.call_later, _call, update)
        except Exception as bug:
            # An exception ends the app, as in Textual's workers.
            post(screen.app.call_later, _raise, bug)

    def post(call: Callable[..., object], *values: object) -> None:
        with suppress(RuntimeError):  # the app ended meanwhile
            call(*values)

    threading.Thread(target=run, name="background", daemon=True).start()


def _call(update: Update) -> None:
    # Without its result: Textual would await that of `dismiss`, which must not be.
    update()


def _raise(bug: Exception) -> None:
    raise bug

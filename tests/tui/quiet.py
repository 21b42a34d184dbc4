"""When an app has done what a key made it do. Textual waits until the process uses little of the
processor, up to a second for every key, which is long on a slow machine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

from textual._context import active_app
from textual.app import App
from textual.message_pump import MessagePump

PATIENCE_S = 1.0
THREADS_PATIENCE_S = 0.04
"""For a thread, which may be waiting for something that is still to come."""
IN_A_ROW = 3
"""Looks at an app at rest: a message may be between two queues."""


async def quiet(min_sleep: float = 0.0, max_sleep: float = PATIENCE_S) -> None:
    """In place of `textual._wait.wait_for_idle`: wait until no message is under way."""
    app = active_app.get()
    begun, at_rest = time.monotonic(), 0
    while at_rest < IN_A_ROW and time.monotonic() - begun < max_sleep:
        await asyncio.sleep(0 if at_rest else 0.001)
        waited = time.monotonic() - begun
        busy = _is_busy(app) or (waited < THREADS_PATIENCE_S and _threads())
        at_rest = 0 if busy else at_rest + 1


def _is_busy(app: App[Any]) -> bool:
    return any(one.message_queue_size or one._next_callbacks for one in _pumps(app))


def _pumps(app: App[Any]) -> Iterator[MessagePump]:
    yield app
    for screen in app.screen_stack:
        yield from screen.walk_children(with_self=True)


def _threads() -> bool:
    """Whether something is read or written away from the screen."""
    return any(one.name == "background" or "worker" in one.name for one in threading.enumerate())

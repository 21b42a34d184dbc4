"""What the tests need of Textual and Textual keeps private: all uses of it are here."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from textual import app as textual_app
from textual import pilot as textual_pilot
from textual._compositor import ChopsUpdate, Compositor
from textual._context import active_app, visible_screen_stack
from textual.app import App
from textual.cache import LRUCache
from textual.css.stylesheet import Stylesheet
from textual.message_pump import MessagePump
from textual.notifications import Notification
from textual.screen import Screen
from textual.strip import Strip

PATIENCE_S = 1.0
THREADS_PATIENCE_S = 0.04
"""For a thread, which may be waiting for something that is still to come."""
IN_A_ROW = 3
"""How often an app has to be found at rest: a message may be between two queues."""


def wait_only_for_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pilot wait for a key until no message is under way. Textual waits until the process
    uses little CPU, up to a second for every key."""
    for module in (textual_app, textual_pilot):
        monkeypatch.setattr(module, "wait_for_idle", _quiet)
    # Textual gives up after 30 seconds, which a busy machine may need for a key.
    monkeypatch.setattr(textual_pilot.Pilot._wait_for_screen, "__defaults__", (600.0,))


async def _quiet(min_sleep: float = 0.0, max_sleep: float = PATIENCE_S) -> None:
    """Stands in for `textual._wait.wait_for_idle`."""
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
    """Whether something is read or written in another thread."""
    return any(one.name == "background" or "worker" in one.name for one in threading.enumerate())


parsed_styles: dict[frozenset[tuple[str, str]], LRUCache[Any, Any]] = {}
"""What the apps of this process have parsed, by the variables of their styles."""


def parse_styles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an app take what others before it have parsed: 6% of the CPU time of its tests."""
    set_variables = Stylesheet.set_variables

    def share(stylesheet: Stylesheet, variables: dict[str, str]) -> None:
        # Textual's empties the cache that it finds.
        stylesheet._parse_cache = LRUCache(stylesheet._parse_cache.maxsize)
        set_variables(stylesheet, variables)
        key = frozenset(variables.items())
        stylesheet._parse_cache = parsed_styles.setdefault(key, stylesheet._parse_cache)

    monkeypatch.setattr(Stylesheet, "set_variables", share)


def drawn_strips(screen: Screen[Any]) -> list[Strip]:
    """The rows of the terminal as the screen draws them, with what is behind a dialog."""
    app = screen.app
    # As the app sets it to paint: else nothing is drawn behind a dialog.
    visible_screen_stack.set(app._background_screens)
    width, height = app.size
    return [strip.crop(0, width) for strip in screen._compositor.render_strips(app.size)[:height]]


def notices(app: App[Any]) -> list[Notification]:
    """The notices that stand on the screen."""
    return list(app._notifications)


def has_stale_map(screen: Screen[Any]) -> bool:
    """Whether the places of the widgets are to be computed again."""
    return screen._compositor._full_map_invalidated


def rows_drawn_again(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Filled, from now on, with the rows that the screen draws again."""
    rows: set[int] = set()
    render = Compositor.render_partial_update

    def rendered(compositor: Compositor) -> ChopsUpdate | None:
        update = render(compositor)
        if update is not None:
            rows.update(row for row, _, _ in update.spans)
        return update

    monkeypatch.setattr(Compositor, "render_partial_update", rendered)
    return rows

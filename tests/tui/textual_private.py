"""What the tests need of Textual and Textual keeps private: all uses of it are here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from textual import app as textual_app
from textual import pilot as textual_pilot
from textual._context import active_app, visible_screen_stack
from textual.app import App
from textual.cache import LRUCache
from textual.css.stylesheet import Stylesheet
from textual.message_pump import MessagePump
from textual.notifications import Notification
from textual.screen import Screen
from textual.strip import Strip

from tests.waiting import until_async

IN_A_ROW = 3
"""How often an app has to be found at rest: a message may be between two queues."""


def wait_only_for_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pilot wait for a key until no message is under way. Textual waits until the process
    uses little CPU, up to a second for every key."""
    for module in (textual_app, textual_pilot):
        monkeypatch.setattr(module, "wait_for_idle", _quiet)
    # Textual gives up after 30 seconds, which a busy machine may need for a key.
    monkeypatch.setattr(textual_pilot.Pilot._wait_for_screen, "__defaults__", (600.0,))


async def _quiet(min_sleep: float = 0.0, max_sleep: float = 0.0) -> None:
    """Stands in for `textual._wait.wait_for_idle`, without its limit."""
    app, at_rest = active_app.get(), 0

    def rests() -> bool:
        nonlocal at_rest
        at_rest = 0 if _busy(app) or _threads() else at_rest + 1
        return at_rest == IN_A_ROW

    await until_async(
        rests,
        lambda: f"an app at rest; busy are {_busy(app)} and {_threads()}",
        lambda: asyncio.sleep(0 if at_rest else 0.001),
    )


def _busy(app: App[Any]) -> list[MessagePump]:
    return [one for one in _pumps(app) if one.message_queue_size or one._next_callbacks]


def _pumps(app: App[Any]) -> Iterator[MessagePump]:
    yield app
    for screen in app.screen_stack:
        yield from screen.walk_children(with_self=True)


def _threads() -> list[threading.Thread]:
    """Those that read or write something for the app."""
    if Gate.is_a_server:
        return []
    return [
        one
        for one in threading.enumerate()
        if (one.name == "background" or "worker" in one.name) and one not in Gate.waiting
    ]


class Gate(threading.Event):
    """Holds threads of the app, which is at rest meanwhile."""

    is_a_server = False
    """Whether all of them wait for a server that does not answer."""
    waiting: set[threading.Thread] = set()

    def wait(self, timeout: float | None = None) -> bool:
        thread = threading.current_thread()
        Gate.waiting.add(thread)
        try:
            return super().wait(timeout)
        finally:
            Gate.waiting.discard(thread)


parsed_styles: dict[frozenset[tuple[str, str]], LRUCache[Any, Any]] = {}
"""What the apps of this process have parsed, by the variables of their styles."""


def parse_styles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an app take what others before it have parsed."""
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

"""The engine or server that the app talks to, whose answers are delivered frame by frame."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property

from eaglechat.hub.fit import Machine
from eaglechat.links.base import Lifecycle, Link, Listener, Watcher
from eaglechat.machine import memory
from eaglechat.settings.model import EngineSettings, ServerSettings
from eaglechat.wire import protocol
from eaglechat.wire.errors import EngineError
from eaglechat.wire.worker import Died


class EngineService:
    """The link in use: the one to the engine of the settings, or one to a server. Listeners are
    called by `tick`, a frame's answers at once."""

    def __init__(
        self,
        link: Link,
        settings: Callable[[], EngineSettings],
        ask_for_tick: Callable[[], object] = lambda: None,
    ) -> None:
        """`ask_for_tick` is called in any thread when answers have come, and then not again before
        `tick`, which it has to call soon in the app's thread."""
        self._own = self._link = link
        self._server: ServerSettings | None = None
        self._settings = settings
        self._watchers: dict[Watcher, None] = {}
        self._pace = FramePace()
        self._ask_for_tick, self._is_tick_asked = ask_for_tick, False
        self.loaded: protocol.PairInfo | None = None
        """The pair in the engine's memory; None if there is none, and while one is being loaded."""
        self._follow(link)

    def _follow(self, link: Link) -> None:
        link.watch(lambda news: self._note(link, news))
        link.wake = self._wake

    def use(self, server: ServerSettings | None) -> None:
        """Use this server from now on, or with None the engine of the settings.

        Raises EngineError.
        """
        if server == self._server:
            return
        self.leave_server()
        if server is not None:
            # The models in this machine's memory will not be used now.
            self.unload()
            # Imports the HTTP client, for which the first paint does not wait.
            from eaglechat.links.http.server import server_link  # noqa: PLC0415

            link = server_link(server)
            self._follow(link)
            self._link, self._server, self.loaded = link, server, None

    def leave_server(self) -> None:
        """Close the link to a server, and use the engine of the settings."""
        if self._link is not self._own:
            self._link.close()
            self._link, self._server, self.loaded = self._own, None, None

    @property
    def hello(self) -> protocol.Hello | None:
        """What the engine said it is and can do; None until it has."""
        return self._link.hello

    def start(self) -> None:
        """Start the engine unless it runs. Raises EngineError."""
        self._link.start()

    def warm(self) -> None:
        """Start an engine on this machine before it is needed, as it reports the machine's memory.

        Errors are ignored: they come again when it is needed.
        """
        if self._is_here and self._link is self._own:
            with suppress(EngineError):
                self.start()

    @property
    def machine(self) -> Machine:
        """The memory of the engine's machine; until it has reported, the RAM of this machine if the
        engine runs here. None if it is not known, as with that of RPC servers."""
        if self._settings().rpc_servers:
            return None
        hello = self._own.hello
        if hello is not None and hello.memory is not None:
            return hello.memory
        return self._ram if self._is_here else None

    @property
    def _is_here(self) -> bool:
        return not self._settings().command

    @cached_property
    def _ram(self) -> protocol.Memory:
        """Read once, as the menu asks for each of its rows."""
        return memory()

    def log_tail(self) -> tuple[str, ...]:
        return self._link.log_tail()

    def request(self, message: protocol.AnsweredRequest, listener: Listener) -> int:
        """Send a request and return its id; `listener` gets each answer to it."""
        link = self._link

        def hear(event: protocol.Answer) -> None:
            # A server may be in use by now.
            if isinstance(event, protocol.Loaded) and link is self._link:
                self.loaded = event.pair
            listener(event)

        if isinstance(message, protocol.Load | protocol.Unload):
            self.loaded = None
        return link.request(message, hear)

    def send(self, message: protocol.Set | protocol.Cancel) -> None:
        self._link.send(message)

    def unload(self) -> None:
        """Free the models' memory."""
        self.request(protocol.Unload(), lambda _event: None)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Tell `watcher` when the engine in use starts or dies; the returned function ends this."""
        self._watchers[watcher] = None

        def unwatch() -> None:
            self._watchers.pop(watcher, None)

        return unwatch

    def _wake(self) -> None:
        if not self._is_tick_asked:
            self._is_tick_asked = True
            self._ask_for_tick()

    def tick(self) -> float:
        """Deliver the answers since the last frame, or none if the next frame is not due yet.
        Returns the seconds until it is."""
        if wait_s := self._pace.wait_s():
            return wait_s
        # What comes from here on asks for another tick.
        self._is_tick_asked = False
        self._own.pump()
        if self._link is not self._own:
            self._link.pump()
        return 0.0

    def close(self) -> None:
        """End the engine. Takes a second at most."""
        self.leave_server()
        self._own.close()

    def _note(self, link: Link, news: Lifecycle) -> None:
        if link is not self._link:
            return
        if isinstance(news, Died):
            self.loaded = None
        for watcher in tuple(self._watchers):
            watcher(news)


DRAWING_SHARE = 0.04
"""The part of a core that may be spent on drawing what the engine writes."""
FEWEST_PER_SECOND = 4.0
MOST_PER_SECOND = 30.0


class FramePace:
    """Says when the next frame is due, so that drawing takes at most `DRAWING_SHARE` of a core, or
    FEWEST_PER_SECOND where that is more; there are at most MOST_PER_SECOND."""

    def __init__(self) -> None:
        self._drawn, self._spent = time.monotonic(), time.thread_time()

    def wait_s(self) -> float:
        """Seconds until the next frame is due. If that is 0, it begins now."""
        now, spent = time.monotonic(), time.thread_time()
        cost = (spent - self._spent) / DRAWING_SHARE
        due = self._drawn + max(1 / MOST_PER_SECOND, min(cost, 1 / FEWEST_PER_SECOND))
        if now < due:
            return due - now
        self._drawn, self._spent = now, spent
        return 0.0

"""The app's one engine: what state it is in, and what it says, at frame rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property

from eaglechat.engine.loading.machine import memory
from eaglechat.hub.catalogue.fit import Machine, machine_of
from eaglechat.links.base import (
    AnsweredRequest,
    Died,
    EngineStartError,
    Lifecycle,
    Link,
    Listener,
    Watcher,
    wrong_version,
)
from eaglechat.links.rpc import RpcServer, ask_all
from eaglechat.settings.servers import ServerSettings
from eaglechat.tui.services.pace import drawing_pace
from eaglechat.wire.capabilities import Memory
from eaglechat.wire.protocol import (
    Answer,
    Cancel,
    Hello,
    Load,
    Loaded,
    PairInfo,
    Set,
    Unload,
)

FRAMES_PER_SECOND = 30
FEWEST_FRAMES_PER_SECOND = 8


class EngineService:
    """What the screens use of a link: the engine's of the settings, or a server's. Their listeners
    are called in frames, by `tick`."""

    def __init__(
        self,
        link: Link,
        is_here: Callable[[], bool],
        connect: Callable[[ServerSettings], Link] | None = None,
    ) -> None:
        """`is_here` says whether the engine that is started runs on this machine; `connect` makes
        the link to a server."""
        self._own = self._link = link
        self._server: ServerSettings | None = None
        self._is_here = is_here
        self._connect = connect or _server_link
        self._watchers: list[Watcher] = []
        self._pace = drawing_pace(FEWEST_FRAMES_PER_SECOND)
        self.loaded: PairInfo | None = None
        """The pair in the engine's memory; None while one is loaded, and where there is none."""
        self._latest: object = None
        """Stands for the last request that changed what is loaded: ids are those of one link."""
        self.lent = 0
        """Bytes that the RPC servers of the settings have free, as far as is known."""
        link.watch(lambda news: self._note(link, news))

    def use(self, server: ServerSettings | None) -> None:
        """Speak with this server from here on, or with the engine of the settings.

        Raises EngineStartError.
        """
        if server == self._server:
            return
        self.leave_server()
        if server is not None:
            # The memory of this machine is not kept for models that nobody uses.
            self.unload()
            link = self._connect(server)
            link.watch(lambda news: self._note(link, news))
            self._link, self._server, self.loaded = link, server, None

    def leave_server(self) -> None:
        """Speak with the engine of the settings again."""
        if self._link is not self._own:
            self._link.close()
            self._link, self._server, self.loaded = self._own, None, None

    @property
    def hello(self) -> Hello | None:
        """What the engine is and can do; None while there is none."""
        return self._link.hello

    def start(self) -> None:
        """Start the engine unless it runs. Raises EngineStartError."""
        if self.hello is not None and wrong_version(self.hello):
            # Another version may have been installed since.
            self._link.close()
        self._link.start()

    def warm(self) -> None:
        """Start an engine on this machine before it is needed; it says what the machine has.

        What goes wrong is said when it is needed.
        """
        if self._is_here() and self._link is self._own:
            with suppress(EngineStartError):
                self.start()

    @property
    def machine(self) -> Machine:
        """The engine's machine; before it has said, the RAM of this one if it runs here."""
        hello = self._own.hello
        if hello is not None and hello.memory is not None:
            return machine_of(hello.memory, self.lent)
        return machine_of(self._ram, self.lent) if self._is_here() else Machine(None)

    @cached_property
    def _ram(self) -> Memory:
        """Read once: the menu asks for each of its rows."""
        return memory()

    def ask_lent(self, rpc_servers: Sequence[str]) -> Callable[[], int] | None:
        """What asks these servers for the memory they lend, for a thread; None where that cannot
        be asked from here: they answer one client at a time, which an engine with models is."""
        if self.loaded is not None or not self._is_here() or not (rpc_servers or self.lent):
            return None
        return lambda: sum(one.free for one in ask_all(rpc_servers) if isinstance(one, RpcServer))

    def request(self, message: AnsweredRequest, listener: Listener) -> int:
        """Send a request; `listener` gets what the engine answers, up to the end of it."""
        if not isinstance(message, Load | Unload):
            return self._link.request(message, listener)

        def hear(event: Answer) -> None:
            if isinstance(event, Loaded) and self._latest is message:
                self.loaded = event.pair
            listener(event)

        self.loaded, self._latest = None, message
        return self._link.request(message, hear)

    def send(self, message: Set | Cancel) -> None:
        self._link.send(message)

    def unload(self) -> None:
        """Free the models' memory."""
        self.request(Unload(), lambda _event: None)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Tell `watcher` what becomes of the engine in use, until the function returned is
        called."""
        self._watchers.append(watcher)

        def unwatch() -> None:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

        return unwatch

    def tick(self) -> None:
        """Deliver what the engine said since the last frame, if a frame is due."""
        if self._pace.is_due():
            self._own.pump()
            if self._link is not self._own:
                self._link.pump()

    def close(self) -> None:
        """End the engine, in a second at most."""
        self.leave_server()
        self._own.close()

    def _note(self, link: Link, news: Lifecycle) -> None:
        if link is not self._link:
            return
        if isinstance(news, Died):
            self.loaded = None
        for watcher in tuple(self._watchers):
            watcher(news)


def _server_link(server: ServerSettings) -> Link:
    # It reads the HTTP client, for which the first paint does not wait.
    from eaglechat.links.http.server_worker import server_link  # noqa: PLC0415

    return server_link(server)

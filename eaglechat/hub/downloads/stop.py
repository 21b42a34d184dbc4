"""Stops a download at once, from any thread: also one that waits for the network."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class StoppedError(Exception):
    """The download was stopped; what has arrived stays."""


class StopSignal:
    """One download's, with the connections it has open."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._connections: set[socket.socket] = set()

    def stop(self) -> None:
        self._stopped.set()
        self.disconnect()

    def disconnect(self) -> None:
        """Shut all connections down: whoever reads from one finds it broken."""
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def check(self) -> None:
        """Raises StoppedError."""
        if self._stopped.is_set():
            raise StoppedError

    def sleep(self, seconds: float) -> None:
        """Raises StoppedError."""
        self._stopped.wait(seconds)
        self.check()

    @contextmanager
    def interrupts(self, response: Any) -> Iterator[None]:
        """While inside, stopping shuts the response's connection down."""
        connection = response.extensions["network_stream"].get_extra_info("socket")
        self._connections.add(connection)
        try:
            self.check()
            yield
        finally:
            self._connections.discard(connection)

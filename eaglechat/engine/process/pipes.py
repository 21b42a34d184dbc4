"""An engine's end of the pipes: requests on standard input, events on standard output, logs on the
rest. What does the work is behind `Jobs`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO, Protocol

from eaglechat.links.base import AnsweredRequest
from eaglechat.wire.lines import ProtocolError, decode_request, encode
from eaglechat.wire.protocol import AnyEvent, Cancel, Error, Hello, Set, Shutdown


class Jobs(Protocol):
    """Does what one client asks, and tells it from any thread, one event at a time."""

    def start(self) -> None:
        """Say hello, and begin to work."""

    def take(self, request: AnsweredRequest | Set | Cancel, /) -> None:
        """Act on a request, or have it wait for those before it."""

    def cancel(self, request_id: int | None = None, /) -> None:
        """Cancel a job, or all of them."""

    def stop(self) -> None:
        """Cancel everything and free the models."""

    def say(self, event: AnyEvent, /) -> None:
        """Tell the client."""


_CLIENT_HAS_S = 0.8
"""Seconds from SIGTERM to the end of this process."""
MakeJobs = Callable[[Callable[[AnyEvent], None]], Jobs]


def serve(jobs: MakeJobs) -> int:
    """Serve on this process' own pipes until they close."""
    # Ctrl+C in the client's terminal reaches this process too; the client decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    events = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever native code prints must not stand between the events.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    server = Server(sys.stdin.buffer, events, jobs)

    def end_soon(*_: object) -> None:
        # `timeout` and batch systems send SIGTERM to the client too: it is still told the ends of
        # the replies that this cancels.
        end = threading.Timer(_CLIENT_HAS_S, os._exit, (128 + signal.SIGTERM,))
        end.daemon = True
        end.start()
        server.cancel()

    signal.signal(signal.SIGTERM, end_soon)
    server.serve()
    return 0


class Server:
    """Answers the requests of one client, a line each."""

    def __init__(self, requests: BinaryIO, events: BinaryIO, jobs: MakeJobs) -> None:
        self._requests = requests
        self._events = events
        self._jobs = jobs(self._send)

    def cancel(self) -> None:
        """Cancel every job."""
        self._jobs.cancel()

    def serve(self) -> None:
        """Read requests until shutdown or the end of the input."""
        self._jobs.start()
        for line in self._requests:
            if line.strip() and not self._receive(line):
                break
        self._jobs.stop()

    def _receive(self, line: bytes) -> bool:
        """Act on a request; False ends the service."""
        try:
            request = decode_request(line)
        except ProtocolError as error:
            message = f"not understood: {error}"
            self._jobs.say(Error(id=error.request_id, code="protocol", message=message))
            return True
        if isinstance(request, Shutdown):
            return False
        self._jobs.take(request)
        return True

    def _send(self, event: AnyEvent) -> None:
        try:
            line = encode(event)
        except ProtocolError as error:
            line = self._instead(event, error)
        try:
            self._events.write(line)
            self._events.flush()
        except OSError:
            # The client is gone; its end of the input closes too and ends the service.
            self._jobs.cancel()

    def _instead(self, event: AnyEvent, error: ProtocolError) -> bytes:
        """What is said in place of an event that cannot be: the request has failed."""
        request_id = None if isinstance(event, Hello) else event.id
        self._jobs.cancel(request_id)
        kind = type(event).__name__
        message = f"the engine cannot encode its answer ({kind}): {error}"
        return encode(Error(id=request_id, code="internal", message=message))

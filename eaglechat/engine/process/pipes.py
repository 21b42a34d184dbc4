"""An engine process' end of the pipes: requests on standard input, events on standard output, logs
on standard error."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO

from eaglechat.wire.lines import ProtocolError, decode_request, encode
from eaglechat.wire.protocol import AnyEvent, Error, Hello, Shutdown
from eaglechat.wire.worker import Died, Say, Worker

_CLIENT_HAS_S = 0.8
"""Seconds from SIGTERM to the end of this process."""


def serve(make: Callable[[Say], Worker]) -> int:
    """Serve on this process' own pipes until they close."""
    # Ctrl+C in the client's terminal reaches this process too; the client decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    events = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever native code prints must not stand between the events.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    client = ClientPipes(sys.stdin.buffer, events, make)

    def end_soon(*_: object) -> None:
        # `timeout` and batch systems send SIGTERM to the client too: the client still hears the
        # ends of the replies that this cancels.
        end = threading.Timer(_CLIENT_HAS_S, os._exit, (128 + signal.SIGTERM,))
        end.daemon = True
        end.start()
        client.worker.cancel()

    signal.signal(signal.SIGTERM, end_soon)
    client.serve()
    return 0


class ClientPipes:
    """Has a worker answer the requests of one client, a line each."""

    def __init__(self, requests: BinaryIO, events: BinaryIO, make: Callable[[Say], Worker]) -> None:
        self._requests = requests
        self._events = events
        self.worker = make(self._send)

    def serve(self) -> None:
        """Read requests until a shutdown or the end of the input."""
        self.worker.start()
        for line in self._requests:
            if not line.strip():
                continue
            try:
                request = decode_request(line)
            except ProtocolError as error:
                message = f"not understood: {error}"
                self.worker.say(Error(id=error.request_id, code="protocol", message=message))
                continue
            if isinstance(request, Shutdown):
                break
            self.worker.take(request)
        self.worker.shut_down()

    def _send(self, event: AnyEvent | Died) -> None:
        if isinstance(event, Died):
            # The client knows an engine's death by the end of its process, and the reason by the
            # last line of its log.
            sys.stderr.write(f"{event.why}\n")
            sys.stderr.flush()
            os._exit(1)
        try:
            line = encode(event)
        except ProtocolError as error:
            # This event's request has failed.
            request_id = None if isinstance(event, Hello) else event.id
            self.worker.cancel(request_id)
            kind = type(event).__name__
            message = f"the engine cannot encode its answer ({kind}): {error}"
            line = encode(Error(id=request_id, code="internal", message=message))
        try:
            self._events.write(line)
            self._events.flush()
        except OSError:
            # The client is gone; its end of the input closes too and ends the service.
            self.worker.cancel()

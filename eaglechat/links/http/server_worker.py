"""An engine that is somebody else's server, asked over HTTP; it runs in the client's process."""

from __future__ import annotations

from functools import partial

from eaglechat.links.http.connection import ServerConnection
from eaglechat.links.http.faults import ServerError
from eaglechat.links.local import LocalLink
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.errors import Cancelled
from eaglechat.wire.protocol import Chat, Hello, Load, Loaded, Render, Unload, Unloaded
from eaglechat.wire.worker import Job, Say, Worker


def server_link(server: ServerSettings) -> LocalLink:
    """A link to this server."""
    return LocalLink(partial(ServerWorker, server))


class ServerWorker(Worker):
    """A server that cannot be reached at the start is the engine's death. Later that fails one
    request, and the next one asks again."""

    def __init__(self, server: ServerSettings, say: Say) -> None:
        """Raises AddressError."""
        super().__init__(say)
        self._connection = ServerConnection(server, self.say)
        self._hello: Hello | None = None
        self._opening = Job(Unload())
        """Stands for the first question to the server, which `shut_down` cancels."""

    def begin(self) -> None:
        try:
            self._connection.open(self._opening)
        except Cancelled:
            return
        self._greet()

    def do(self, job: Job) -> None:
        request = job.request
        if isinstance(request, Load):
            pair = self._connection.load(job, request)
            self._greet()
            self.say(Loaded(id=job.id, pair=pair))
        elif isinstance(request, Unload):
            self._connection.unload()
            self.say(Unloaded(id=job.id))
        elif isinstance(request, Chat):
            self._connection.chat(job, request)
        elif isinstance(request, Render) and self._connection.kind.can.prompt:
            self._connection.render(job, request)
        else:
            self._connection.loaded()
            name = self._connection.kind.name
            raise ServerError(f"{name} does not answer this request", code="unsupported")

    def finish(self) -> None:
        self._connection.close()

    def explain(self, error: Exception) -> str:
        # Standard error may be the terminal that the app draws on: no traceback.
        return f"asking the server failed ({type(error).__name__}: {error})"

    def shut_down(self, patience_s: float | None = None) -> None:
        self._opening.cancel()
        super().shut_down(patience_s)

    def _greet(self) -> None:
        """Say Hello, and again when another server answers at this address than before."""
        if self._connection.hello != self._hello:
            self._hello = self._connection.hello
            self.say(self._hello)

"""The link to a server of somebody else's, over HTTP.

One thread runs an event loop in which everything happens that waits for the network; closing a
connection is a matter of cancelling what waits for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from eaglechat.links.base import Died, EngineStartError, RoutedLink
from eaglechat.links.http.client import ServerClient
from eaglechat.links.http.jobs import Jobs
from eaglechat.links.http.loop import new_loop, run_to_end
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import AnyEvent, AnyRequest, Cancel, Set, Shutdown


class HttpLink(RoutedLink):
    """Speaks with one server. That it cannot be reached when it is first asked is its death; later,
    it is the failure of a request, and the next one asks again."""

    def __init__(self, server: ServerSettings) -> None:
        super().__init__()
        self._server = server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: Jobs | None = None
        self._task: asyncio.Task[None] | None = None

    def open_engine(self, say: Callable[[AnyEvent | Died], None]) -> None:
        try:
            client = ServerClient(self._server)
        except EngineError as error:
            raise EngineStartError(str(error)) from error
        loop = self._loop = new_loop()
        self._jobs = Jobs(client, say)
        self._task = loop.create_task(_work(self._jobs, say))
        work_off = partial(run_to_end, loop, self._task)
        threading.Thread(target=work_off, name="server", daemon=True).start()

    def hand_over(self, message: AnyRequest) -> None:
        jobs = self._jobs
        assert jobs is not None
        if isinstance(message, Cancel):
            self._soon(jobs.cancel, message.id)
        elif not isinstance(message, Set | Shutdown):
            self._soon(jobs.take, message)

    def end_engine(self, patience_s: float) -> None:
        assert self._task is not None
        self._soon(self._task.cancel)

    def _soon(self, call: Callable[..., object], *values: object) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call, *values)


async def _work(jobs: Jobs, say: Callable[[AnyEvent | Died], None]) -> None:
    try:
        await jobs.run()
    except EngineError as error:
        say(Died(None, (), why=str(error)))
    except Exception as error:
        say(Died(None, (), why=f"the link failed ({type(error).__name__}: {error})"))

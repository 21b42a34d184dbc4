"""An engine in this very process, for where no other can be started.

It is the same engine behind the same link, but for the pipes: a failed assertion inside llama.cpp
ends the client too.
"""

from __future__ import annotations

from collections.abc import Callable

from eaglechat.engine.llama import backend
from eaglechat.engine.process.job_loop import JobLoop
from eaglechat.links.base import Died, RoutedLink
from eaglechat.wire.protocol import AnyEvent, AnyRequest, Shutdown


class LocalEngine(RoutedLink):
    """The link to it. llama.cpp's errors go to standard error, the rest of its log nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: JobLoop | None = None

    def open_engine(self, say: Callable[[AnyEvent | Died], None]) -> None:
        backend.start_backend(backend.LOG_ERRORS)
        self._jobs = JobLoop(say)
        self._jobs.start()

    def hand_over(self, message: AnyRequest) -> None:
        if self._jobs is not None and not isinstance(message, Shutdown):
            self._jobs.take(message)

    def end_engine(self, patience_s: float) -> None:
        jobs, self._jobs = self._jobs, None
        if jobs is not None:
            jobs.stop(patience_s)

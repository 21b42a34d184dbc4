"""The link to an engine in the client's own process."""

from __future__ import annotations

from collections.abc import Callable

from eaglechat.links.base import EngineStartError, Link
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import AnyRequest, Shutdown
from eaglechat.wire.worker import Say, Worker


class LocalLink(Link):
    """Hands requests to a worker, whose thread answers them."""

    def __init__(self, make: Callable[[Say], Worker]) -> None:
        """`make` makes the engine; the EngineError that it raises becomes an EngineStartError."""
        super().__init__()
        self._make = make
        self._worker: Worker | None = None

    def open_engine(self, say: Say) -> None:
        if self._worker is not None:
            # It is gone; its thread may still wait for a request.
            self._worker.shut_down(0.0)
        try:
            self._worker = self._make(say)
        except EngineError as error:
            raise EngineStartError(str(error)) from error
        self._worker.start()

    def hand_over(self, message: AnyRequest) -> None:
        assert self._worker is not None
        if not isinstance(message, Shutdown):
            self._worker.take(message)

    def log_tail(self) -> tuple[str, ...]:
        return (self._worker.log_tail() if self._worker else ()) or super().log_tail()

    def end_engine(self, patience_s: float) -> None:
        assert self._worker is not None
        self._worker.shut_down(patience_s)

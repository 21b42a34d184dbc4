"""The link to an engine in the client's own process."""

from __future__ import annotations

from collections.abc import Callable

from eaglechat.links.base import Died, EngineStartError, Link
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import AnyEvent, AnyRequest, Shutdown
from eaglechat.wire.worker import Gone, Say, Worker


class LocalLink(Link):
    """Hands requests to a worker, whose thread answers them."""

    def __init__(self, make: Callable[[Say], Worker]) -> None:
        """`make` makes the engine; the EngineError that it raises becomes an EngineStartError."""
        super().__init__()
        self._make = make
        self._worker: Worker | None = None

    def open_engine(self, say: Callable[[AnyEvent | Died], None]) -> None:
        if self._worker is not None:
            # It is gone; its thread may still wait for a request.
            self._worker.shut_down(0.0)

        def tell(event: AnyEvent | Gone) -> None:
            say(Died(None, worker.log_tail(), event.why) if isinstance(event, Gone) else event)

        try:
            self._worker = worker = self._make(tell)
        except EngineError as error:
            raise EngineStartError(str(error)) from error
        worker.start()

    def hand_over(self, message: AnyRequest) -> None:
        assert self._worker is not None
        if not isinstance(message, Shutdown):
            self._worker.take(message)

    def log_tail(self) -> tuple[str, ...]:
        return (self._worker.log_tail() if self._worker else ()) or super().log_tail()

    def end_engine(self, patience_s: float) -> None:
        assert self._worker is not None
        self._worker.shut_down(patience_s)

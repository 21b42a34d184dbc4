"""How a client reaches an engine, wherever that runs.

`Link` gives requests their ids, hands each answer to whoever asked, and tells who watches that the
engine starts, is ready or has died. A kind of link adds how its engine is opened, reached and
ended: `ProcessLink` (process.py) over the pipes of a child process, `LocalLink` in the client's own
process.
"""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Iterable
from dataclasses import replace

import msgspec

from eaglechat.links import crashes
from eaglechat.wire import protocol
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import ProtocolError
from eaglechat.wire.worker import Died, Say, Worker, cancelled_answer

ENGINE_DIED = "engine_died"
"""Code of the error that answers requests of an engine that is gone."""


Lifecycle = protocol.Hello | Died
"""What becomes of an engine: it takes requests, or has ended."""
Listener = Callable[[protocol.Answer], None]
Watcher = Callable[[Lifecycle], None]
_News = protocol.AnyEvent | Died


class Link:
    """An engine, as its client sees it. Listeners and watchers are called only within `pump`."""

    def __init__(self) -> None:
        self.hello: protocol.Hello | None = None
        """What the engine is and can do; None until it is ready, and after it died."""
        self._is_open = False
        self._last_words: tuple[str, ...] = ()
        self._ids = itertools.count(1)
        self._pending: dict[int, tuple[protocol.AnsweredRequest, Listener]] = {}
        self._cancelled: set[int] = set()
        """The ids of pending requests that have been cancelled."""
        self._watchers: list[Watcher] = []
        self._inbox: queue.SimpleQueue[_News] = queue.SimpleQueue()
        self.wake: Callable[[], None] = lambda: None
        """Called, in any thread, when something has come for `pump`."""

    # What a kind of link adds

    def open_engine(self, say: Say) -> None:
        """Start the engine. It calls `say` with its events, from any thread; Died is the last one.

        Raises EngineError.
        """
        raise NotImplementedError

    def hand_over(self, message: protocol.AnsweredRequest | protocol.Set | protocol.Cancel) -> None:
        """Send the engine a message, without waiting. Raises ProtocolError if it cannot be sent."""
        raise NotImplementedError

    def end_engine(self, patience_s: float) -> None:
        """Ask the engine to end, and end it by force after `patience_s` seconds."""
        raise NotImplementedError

    def log_tail(self) -> tuple[str, ...]:
        """The last lines of the engine's log; of one that runs elsewhere, those it died with."""
        return self._last_words

    # What a client calls

    def start(self) -> None:
        """Start the engine unless it runs. Raises EngineError."""
        if not self._is_open:
            self._open()
            self._is_open = True

    def _open(self) -> None:
        """Raises EngineError."""
        inbox = self._inbox

        def say(news: _News) -> None:
            inbox.put(news)
            self.wake()

        self.open_engine(say)

    def request(self, message: protocol.AnsweredRequest, listener: Listener) -> int:
        """Send a request under a new id, which is returned.

        `listener` gets every event of that id, up to the one that ends the request: an Error with
        the code `engine_died` if the engine is gone. A load cancels the loads before it.
        """
        request_id = next(self._ids)
        message = msgspec.structs.replace(message, id=request_id)
        if isinstance(message, protocol.Load):
            for earlier_id, (earlier, _) in self._pending.items():
                if isinstance(earlier, protocol.Load):
                    self.send(protocol.Cancel(id=earlier_id))
        self._pending[request_id] = message, listener
        if not self._is_open:
            self._refuse([request_id], ENGINE_DIED, "the engine is not running")
            return request_id
        try:
            self.hand_over(message)
        except ProtocolError as error:
            self._refuse([request_id], "protocol", f"the request cannot be sent: {error}")
        return request_id

    def _refuse(self, ids: Iterable[int], code: str, message: str) -> None:
        """Answer requests with an error, when the client pumps."""
        for request_id in ids:
            self._inbox.put(protocol.Error(id=request_id, code=code, message=message))
        self.wake()

    def send(self, message: protocol.Set | protocol.Cancel) -> None:
        """Send what has no answer; does nothing if the engine is gone."""
        if isinstance(message, protocol.Cancel) and message.id in self._pending:
            self._cancelled.add(message.id)
        if self._is_open:
            self.hand_over(message)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Tell `watcher` what becomes of the engine, until the returned function is called."""
        self._watchers.append(watcher)

        def unwatch() -> None:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

        return unwatch

    def pump(self, wait_s: float = 0.0) -> None:
        """Deliver what has come, in order; wait for the first event at most `wait_s` seconds."""
        inbox = self._inbox
        try:
            self._deliver(inbox.get(timeout=wait_s) if wait_s else inbox.get_nowait())
            for _ in range(inbox.qsize()):
                if inbox is not self._inbox:
                    return
                self._deliver(inbox.get_nowait())
        except queue.Empty:
            return

    def close(self, patience_s: float = 1.0) -> None:
        """End the engine: ask, wait `patience_s` seconds, kill."""
        if not self._is_open:
            return
        self._is_open, self.hello = False, None
        # What the closed engine still says goes to the old inbox, which nobody reads.
        self._inbox = queue.SimpleQueue()
        self._refuse(self._pending, ENGINE_DIED, "the engine was closed")
        self.end_engine(patience_s)

    def _deliver(self, event: _News) -> None:
        if isinstance(event, protocol.Hello) and event.protocol != protocol.PROTOCOL_VERSION:
            # It is ended: it can be asked nothing. Nobody reads what it still says.
            self._inbox = queue.SimpleQueue()
            self.end_engine(0.0)
            event = Died(
                None,
                (),
                f"the engine speaks version {event.protocol} of the protocol (eaglechat "
                f"{event.eaglechat}), this program speaks {protocol.PROTOCOL_VERSION}: install the "
                "same version of eaglechat on both machines",
            )
        if isinstance(event, protocol.Hello):
            self.hello = event
            self._tell(event)
        elif isinstance(event, Died):
            self._last_words = event.log_tail
            crash = crashes.crash(event.exit_status)
            hint = self._after_crash(event, crash) if crash else ""
            if hint is None:
                return
            status = event.exit_status
            how = f" ({crashes.how_it_ended(status)})" if status is not None else ""
            why = event.why or f"the engine stopped by itself{how}{hint}"
            self._is_open, self.hello = False, None
            self._tell(replace(event, why=why))
            self._fail_pending(ENGINE_DIED, why)
        else:
            if isinstance(event, protocol.Error) and event.code == "protocol":
                # Engine or client did not understand the other: stop work whose answers nobody
                # gets.
                self.send(protocol.Cancel(id=event.id))
            if event.id is not None:
                self._answer(event.id, event)
            elif isinstance(event, protocol.Error):
                # It may be about any request, and none may wait for ever.
                self._fail_pending(event.code, event.message)

    def _after_crash(self, died: Died, crash: str) -> str | None:
        """Start an engine again that crashed in a load, or in a request that was cancelled for one.

        The load is repeated with less. Returns None if the engine runs, else a hint at the likely
        cause of the crash.
        """
        illegal = crash in crashes.ILLEGAL_INSTRUCTION
        hint = f": {crashes.BUILT_FOR_ANOTHER_PROCESSOR}" if illegal else ""
        if self.hello is None:
            return hint
        waiting = [one for one in self._pending if one not in self._cancelled]
        if not any(isinstance(self._pending[one][0], protocol.Load) for one in waiting):
            return ""
        # The engine answers in order: it crashed in the oldest request.
        oldest, (request, listener) = next(iter(self._pending.items()))
        again = None
        if oldest in waiting:
            if not isinstance(request, protocol.Load):
                return ""
            has_gpu = self.hello.memory is not None and self.hello.memory.gpu > 0
            again = crashes.with_less(request, crash, died.log_tail, has_gpu=has_gpu)
            if again is None:
                return crashes.likely_cause(request, died.log_tail) + hint
            self._pending[oldest] = again, listener
        try:
            self._open()
        except EngineError:
            return hint
        self.hello = None
        for one in waiting:
            self.hand_over(self._pending[one][0])
        for one in self._cancelled & self._pending.keys():
            self._answer(one, cancelled_answer(self._pending[one][0]))
        if again is not None:
            how = again.crash or crashes.OUT_OF_MEMORY
            step = protocol.Restarting(how, again.leave_out, died.log)
            self._answer(oldest, protocol.Progress(id=oldest, step=step))
        return None

    def _answer(self, request_id: int, event: protocol.Answer) -> None:
        if request_id not in self._pending:
            return
        _, listener = self._pending[request_id]
        if not isinstance(event, protocol.Progress):
            del self._pending[request_id]
            self._cancelled.discard(request_id)
        listener(event)

    def _fail_pending(self, code: str, message: str) -> None:
        for request_id in tuple(self._pending):
            self._answer(request_id, protocol.Error(id=request_id, code=code, message=message))

    def _tell(self, news: Lifecycle) -> None:
        for watcher in tuple(self._watchers):
            watcher(news)


class LocalLink(Link):
    """An engine in the client's process: a worker, whose thread answers the requests."""

    def __init__(self, make: Callable[[Say], Worker]) -> None:
        """`make` makes the engine. Raises EngineError."""
        super().__init__()
        self._make = make
        self._worker: Worker | None = None

    def open_engine(self, say: Say) -> None:
        if self._worker is not None:
            # It is gone; its thread may still wait for a request.
            self._worker.shut_down(0.0)
        self._worker = self._make(say)
        self._worker.start()

    def hand_over(self, message: protocol.AnsweredRequest | protocol.Set | protocol.Cancel) -> None:
        assert self._worker is not None
        self._worker.take(message)

    def log_tail(self) -> tuple[str, ...]:
        return (self._worker.log_tail() if self._worker else ()) or super().log_tail()

    def end_engine(self, patience_s: float) -> None:
        assert self._worker is not None
        self._worker.shut_down(patience_s)

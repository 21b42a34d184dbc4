"""What every engine does, whatever it computes with: it answers requests one after the other, in a
thread of its own, so that a cancel or a change arrives while a request is being answered.

Three kinds of engine are Workers. eaglechat's own (engine/process.py) runs in an engine
process behind its pipes. In the client's process, behind a `LocalLink`, run the user's llama-server
program (links/llama_server/worker.py) and a server that is asked over HTTP
(links/http/server.py).
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

from eaglechat.wire import protocol
from eaglechat.wire.errors import Cancelled, EngineError
from eaglechat.wire.records import FinishReason, ReplyEnd, ReplyTimings, sums
from eaglechat.wire.stats import SpeculationStats


@dataclass(frozen=True)
class Died:
    """The last event of an engine, which ended without being asked to."""

    exit_status: int | None
    """Of the engine's process; None if it had none, or if `why` is known."""
    log_tail: tuple[str, ...]
    """The end of its log."""
    why: str = ""
    """A whole clause. The link to a process makes it from the exit status."""
    log: str = ""
    """The file that keeps the whole log of a crash; empty if there is none."""


Say = Callable[[protocol.AnyEvent | Died], None]
"""Tells the client an event."""


@dataclass(eq=False)
class _Job:
    """A request that waits or is being answered. A plain flag: the handler of SIGTERM sets it too,
    in the middle of anything."""

    request: protocol.AnsweredRequest
    is_cancelled: bool = False


def cancelled_answer(request: protocol.AnsweredRequest) -> protocol.Answer:
    """The last answer to a request that was cancelled; to a chat, before the reply had begun."""
    if isinstance(request, protocol.Chat):
        nothing = ReplyTimings(0.0, 0, 0, 0.0, **sums(()))
        seed = request.sampling.draw_seed()
        end = ReplyEnd(FinishReason.CANCELLED, seed, tokens=0, tail="", timings=nothing)
        return protocol.Done(id=request.id, end=end, stats=SpeculationStats())
    what = "the load" if isinstance(request, protocol.Load) else "it"
    return protocol.Error(id=request.id, code=Cancelled.code, message=f"{what} was cancelled")


_asked: ContextVar[Callable[[], bool]] = ContextVar("_asked", default=lambda: False)


@contextmanager
def cancelled_by(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """What this thread does inside is cancelled once `is_cancelled` says so. Not for use in a
    generator: its caller would be inside too."""
    token = _asked.set(is_cancelled)
    try:
        yield
    finally:
        _asked.reset(token)


def whether_cancelled() -> Callable[[], bool]:
    """Says whether the request is cancelled, in any thread: for callbacks of native code, which an
    exception cannot pass."""
    return _asked.get()


def check() -> None:
    """Raises Cancelled once the request that this thread answers is to end, however deep the work
    for it is."""
    if _asked.get()():
        raise Cancelled


class Worker:
    """Answers the requests of one client. A kind of engine adds `begin`, `do` and `finish`."""

    def __init__(self, say: Say) -> None:
        """`say` may be called from any thread, but not by two at a time."""
        self._tell = say
        self._tell_lock = threading.Lock()
        self._is_gone = False
        self._is_ending = False
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._unfinished: list[_Job] = []
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    # What a kind of engine adds; all of it runs in the worker's thread

    def begin(self) -> None:
        """Get ready and say Hello. An exception is the death of the engine, but for Cancelled,
        which `check` raises once the engine is to end."""

    def do(self, request: protocol.AnsweredRequest) -> None:
        """Answer a request. Raises EngineError, which becomes the Error that answers it, and
        Cancelled."""
        raise NotImplementedError

    def finish(self) -> None:
        """Free what the engine holds."""

    def explain(self, error: Exception) -> str:
        """What to tell the client about an exception that is no EngineError."""
        traceback.print_exc()
        return f"the engine failed ({type(error).__name__}: {error}); its log has more"

    # What the client's side calls, from any thread

    def start(self) -> None:
        self._thread.start()

    def take(self, message: protocol.AnsweredRequest | protocol.Set | protocol.Cancel) -> None:
        """Queue a request, or act on a cancel at once."""
        if isinstance(message, protocol.Cancel):
            self.cancel(message.id)
        elif not isinstance(message, protocol.Set):
            job = _Job(message)
            self._unfinished.append(job)
            self._queue.put(job)

    def cancel(self, request_id: int | None = None) -> None:
        """Cancel one request, or all of them."""
        for job in list(self._unfinished):
            if request_id in (None, job.request.id):
                job.is_cancelled = True

    def shut_down(self, patience_s: float | None = None) -> None:
        """Cancel everything and end the thread; wait for that at most `patience_s` seconds."""
        self._is_ending = True
        self.cancel()
        self._queue.put(None)
        self._thread.join(patience_s)

    def say(self, event: protocol.AnyEvent | Died) -> None:
        with self._tell_lock:
            if not self._is_gone:
                self._is_gone = isinstance(event, Died)
                self._tell(event)

    def die(self, why: str) -> None:
        """Say that the engine cannot go on; `why` is a whole clause."""
        self.say(Died(None, self.log_tail(), why))

    def log_tail(self) -> tuple[str, ...]:
        """The last lines of what the engine logs, if that is kept here."""
        return ()

    def _work(self) -> None:
        try:
            with cancelled_by(lambda: self._is_ending), suppress(Cancelled):
                self.begin()
            while (job := self._queue.get()) is not None:
                self._answer(job)
                self._unfinished.remove(job)
        except EngineError as error:
            self.die(str(error))
        except Exception as error:
            self.die(self.explain(error))
        finally:
            self.finish()

    def _answer(self, job: _Job) -> None:
        request = job.request
        try:
            with cancelled_by(lambda: job.is_cancelled):
                self.do(request)
        except Cancelled:
            self.say(cancelled_answer(request))
        except EngineError as error:
            self.say(protocol.Error(id=request.id, code=error.code, message=str(error)))
        except Exception as error:
            self.say(protocol.Error(id=request.id, code="internal", message=self.explain(error)))

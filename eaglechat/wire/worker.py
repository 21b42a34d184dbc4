"""What every engine does, whatever it computes with: it answers requests one after the other, in a
thread of its own, so that a cancel or a change arrives while a request is being answered.

Three kinds of engine are Workers. eaglechat's own (engine/process/pair_worker.py) runs in an engine
process behind its pipes. In the client's process, behind a `LocalLink`, run the user's llama-server
program (links/llama_server/worker.py) and a server that is asked over HTTP
(links/http/server.py).
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from eaglechat.wire import cancelling
from eaglechat.wire.errors import Cancelled, EngineError
from eaglechat.wire.protocol import (
    Answer,
    AnsweredRequest,
    AnyEvent,
    Cancel,
    Chat,
    Done,
    Error,
    Load,
    Set,
)
from eaglechat.wire.records import FinishReason, ReplyEnd, ReplyTimings, sums
from eaglechat.wire.stats import SpeculationStats


@dataclass(frozen=True)
class Gone:
    """The last event of an engine that cannot go on; `why` is a whole clause."""

    why: str


Say = Callable[[AnyEvent | Gone], None]
"""Tells the client an event."""


class Job:
    """A request that waits or is being answered; it can be cancelled from any thread."""

    def __init__(self, request: AnsweredRequest) -> None:
        self.request = request
        # Reentrant: the handler of SIGTERM cancels jobs too, in the middle of anything.
        self._lock = threading.RLock()
        self._is_cancelled = False
        self._on_cancel: list[Callable[[], None]] = []

    @property
    def id(self) -> int:
        return self.request.id

    def is_cancelled(self) -> bool:
        return self._is_cancelled

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            calls, self._on_cancel = self._on_cancel, []
        for call in calls:
            call()

    def on_cancel(self, call: Callable[[], None]) -> None:
        """Call this once the job is cancelled, from the thread that cancels it; at once if it has
        been cancelled."""
        with self._lock:
            if not self._is_cancelled:
                self._on_cancel.append(call)
                return
        call()


def cancelled_answer(request: AnsweredRequest) -> Answer:
    """The last answer to a request that was cancelled; to a chat, before the reply had begun."""
    if isinstance(request, Chat):
        nothing = ReplyTimings(0.0, 0, 0, 0.0, **sums(()))
        seed = request.sampling.draw_seed()
        end = ReplyEnd(FinishReason.CANCELLED, seed, tokens=0, tail="", timings=nothing)
        return Done(id=request.id, end=end, stats=SpeculationStats())
    what = "the load" if isinstance(request, Load) else "it"
    return Error(id=request.id, code=Cancelled.code, message=f"{what} was cancelled")


class Worker:
    """Answers the requests of one client. A kind of engine adds `begin`, `do` and `finish`."""

    def __init__(self, say: Say) -> None:
        """`say` may be called from any thread, but not by two at a time."""
        self._tell = say
        self._tell_lock = threading.Lock()
        self._is_gone = False
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._unfinished: list[Job] = []
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    # What a kind of engine adds; all of it runs in the worker's thread

    def begin(self) -> None:
        """Get ready and say Hello. An exception is the death of the engine."""

    def do(self, job: Job) -> None:
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

    def take(self, message: AnsweredRequest | Set | Cancel) -> None:
        """Queue a request, or act on a cancel at once."""
        if isinstance(message, Cancel):
            self.cancel(message.id)
        elif not isinstance(message, Set):
            job = Job(message)
            self._unfinished.append(job)
            self._queue.put(job)

    def cancel(self, request_id: int | None = None) -> None:
        """Cancel one request, or all of them."""
        for job in list(self._unfinished):
            if request_id in (None, job.id):
                job.cancel()

    def shut_down(self, patience_s: float | None = None) -> None:
        """Cancel everything and end the thread; wait for that at most `patience_s` seconds."""
        self.cancel()
        self._queue.put(None)
        self._thread.join(patience_s)

    def say(self, event: AnyEvent | Gone) -> None:
        with self._tell_lock:
            if not self._is_gone:
                self._is_gone = isinstance(event, Gone)
                self._tell(event)

    def log_tail(self) -> tuple[str, ...]:
        """The last lines of what the engine logs, if that is kept here."""
        return ()

    def _work(self) -> None:
        try:
            self.begin()
            while (job := self._queue.get()) is not None:
                self._answer(job)
                self._unfinished.remove(job)
        except EngineError as error:
            self.say(Gone(str(error)))
        except Exception as error:
            self.say(Gone(self.explain(error)))
        finally:
            self.finish()

    def _answer(self, job: Job) -> None:
        try:
            with cancelling.by(job.is_cancelled):
                self.do(job)
        except Cancelled:
            self.say(cancelled_answer(job.request))
        except EngineError as error:
            self.say(Error(id=job.id, code=error.code, message=str(error)))
        except Exception as error:
            self.say(Error(id=job.id, code="internal", message=self.explain(error)))

"""An engine without pipes: takes requests, says events, does one job after the other.

Requests are taken on the caller's thread, so that a cancel or a change is seen at once; a thread of
its own loads and generates.
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

import eaglechat
from eaglechat.engine.generation.live import Live
from eaglechat.engine.llama import backend, left_out
from eaglechat.engine.loading.machine import memory
from eaglechat.engine.loading.pair import LoadedPair, Progress
from eaglechat.engine.process.bench_job import BenchJob
from eaglechat.engine.process.chat_job import ChatJob
from eaglechat.engine.process.rendering import rendered
from eaglechat.gguf.preflight import check_pair
from eaglechat.links.base import AnsweredRequest
from eaglechat.paths import expanded
from eaglechat.wire.capabilities import EVERYTHING
from eaglechat.wire.errors import EngineError, LoadCancelledError, NoPairError
from eaglechat.wire.protocol import (
    PROTOCOL_VERSION,
    AnyEvent,
    Bench,
    Cancel,
    Chat,
    Error,
    Hello,
    Load,
    Loaded,
    Loading,
    Render,
    Set,
    Unloaded,
)


@dataclass(frozen=True)
class _Job:
    """Work for the worker thread, and what may still reach it from outside."""

    request: AnsweredRequest
    cancelled: threading.Event
    live: Live | None


class JobLoop:
    """Does what one client asks. `say` is called from any thread, one event at a time."""

    def __init__(self, say: Callable[[AnyEvent], None]) -> None:
        self._tell = say
        self._tell_lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._unfinished: list[_Job] = []
        self._pairs: list[LoadedPair] = []
        """The pair, and the same again for a bench by turns."""
        self._load_again: Callable[[Progress], LoadedPair]
        self._worker = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        """Say hello, and begin to work."""
        python, native = backend.versions()
        devices = backend.devices()
        self.say(
            Hello(
                protocol=PROTOCOL_VERSION,
                can=EVERYTHING,
                eaglechat=eaglechat.__version__,
                llama_cpp=f"{native}, llama-cpp-python {python}",
                devices=tuple(device.description for device in devices),
                memory=memory(devices),
                left_out=left_out.for_this_process(),
                can_leave_out=left_out.possible(),
            )
        )
        self._worker.start()

    def take(self, request: AnsweredRequest | Set | Cancel) -> None:
        """Act on a request, or have it wait for those before it."""
        if isinstance(request, Cancel):
            self.cancel(request.id)
        elif isinstance(request, Set):
            for job in list(self._unfinished):
                if job.live is not None:
                    job.live.apply(request)
        else:
            live = None
            if isinstance(request, Chat):
                live = Live(request.speculation, request.sampling.temperature)
            job = _Job(request, threading.Event(), live)
            self._unfinished.append(job)
            self._queue.put(job)

    def cancel(self, request_id: int | None = None) -> None:
        """Cancel a job, or all of them."""
        for job in list(self._unfinished):
            if request_id in (None, job.request.id):
                job.cancelled.set()

    def stop(self, patience_s: float | None = None) -> None:
        """Cancel everything and free the models; give up waiting after `patience_s` seconds."""
        self.cancel()
        self._queue.put(None)
        self._worker.join(patience_s)

    def say(self, event: AnyEvent) -> None:
        """Tell the client."""
        with self._tell_lock:
            self._tell(event)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            request_id = job.request.id
            try:
                self._do(job)
            except EngineError as error:
                self.say(Error(id=request_id, code=error.code, message=str(error)))
            except Exception as error:
                traceback.print_exc()
                message = f"the engine failed ({type(error).__name__}: {error}); its log has more"
                self.say(Error(id=request_id, code="internal", message=message))
            self._unfinished.remove(job)
        self._unload()

    def _do(self, job: _Job) -> None:
        if isinstance(job.request, Load):
            self._load(job.request, job.cancelled)
        elif isinstance(job.request, Chat):
            assert job.live is not None
            chat = ChatJob(job.request, job.live, job.cancelled.is_set, self.say)
            chat.run(self._loaded())
        elif isinstance(job.request, Bench):
            self._bench(job.request, job.cancelled)
        elif isinstance(job.request, Render):
            self.say(rendered(job.request, self._loaded(), job.cancelled.is_set))
        else:
            self._unload()
            self.say(Unloaded(id=job.request.id))

    def _load(self, request: Load, cancelled: threading.Event) -> None:
        def progress(stage: str, fraction: float) -> bool:
            self.say(Loading(id=request.id, stage=stage, fraction=fraction))
            return not cancelled.is_set()

        if cancelled.is_set():
            raise LoadCancelledError("the load was cancelled")
        draft = expanded(request.draft) if request.draft else None
        headers = check_pair(expanded(request.target), draft)
        self._unload()
        self._pairs.append(LoadedPair(headers, request.options, progress, request.leave_out))
        info = self._pairs[0].info
        if request.leave_out is not None:
            # It crashed with more, and does not with this.
            left_out.remember(info.left_out)
        # In the same context: each that follows would find less memory for its own.
        options = msgspec.structs.replace(request.options, n_ctx=info.n_ctx)
        self._load_again = partial(LoadedPair, headers, options, leave_out=info.left_out)
        self.say(Loaded(id=request.id, pair=info))

    def _bench(self, request: Bench, cancelled: threading.Event) -> None:
        def others(count: int) -> list[LoadedPair]:
            while len(self._pairs) <= count:
                self._pairs.append(self._load_again(lambda _stage, _done: not cancelled.is_set()))
            return self._pairs[1 : count + 1]

        BenchJob(request, self._loaded(), others, cancelled.is_set, self.say).run()

    def _unload(self) -> None:
        while self._pairs:
            self._pairs.pop().close()

    def _loaded(self) -> LoadedPair:
        """The pair in memory. Raises NoPairError."""
        if not self._pairs:
            raise NoPairError("no pair is loaded; load one first")
        return self._pairs[0]

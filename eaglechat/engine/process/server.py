"""The engine process: requests on standard input, events on standard output, logs on the rest.

The main thread reads requests, so that a cancel or a change is seen at once; one worker thread
loads and generates. A failed assertion inside llama.cpp kills this process and nothing else.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import eaglechat
from eaglechat.engine.generation.live import Live
from eaglechat.engine.generation.reply import unbegun
from eaglechat.engine.llama import backend
from eaglechat.engine.loading.machine import memory
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.engine.process.bench_job import BenchJob
from eaglechat.gguf.preflight import check_pair
from eaglechat.wire.errors import EngineError, NoPairError, PromptCancelledError
from eaglechat.wire.protocol import (
    EVERYTHING,
    PROTOCOL_VERSION,
    AnyEvent,
    Bench,
    Cancel,
    Chat,
    Done,
    Error,
    Hello,
    Load,
    Loaded,
    Loading,
    PrefillProgress,
    ProtocolError,
    RoundDone,
    Set,
    Shutdown,
    SpeculationStopped,
    Unload,
    Unloaded,
    WindowMoved,
    decode_request,
    encode,
)
from eaglechat.wire.records import Prefill, ReplyEnd, Round, Window
from eaglechat.wire.stats import StatsFold


@dataclass(frozen=True)
class _Job:
    """Work for the worker thread, and what may still reach it from outside."""

    request: Load | Chat | Bench | Unload
    cancelled: threading.Event
    live: Live | None

    @property
    def id(self) -> int:
        return self.request.id


def main() -> int:
    """Serve on this process' own pipes until they close."""
    # Ctrl+C in the client's terminal reaches this process too; the client decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    events = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever native code prints must not stand between the events.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    backend.start_backend(backend.LOG_INFO)
    Server(sys.stdin.buffer, events).serve()
    return 0


class Server:
    """Answers the requests of one client."""

    def __init__(self, requests: BinaryIO, events: BinaryIO) -> None:
        self._requests = requests
        self._events = events
        self._events_lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._unfinished: list[_Job] = []
        self._pair: LoadedPair | None = None

    def serve(self) -> None:
        """Read requests until shutdown or the end of the input."""
        python, native = backend.versions()
        devices = backend.devices()
        self._send(
            Hello(
                protocol=PROTOCOL_VERSION,
                can=EVERYTHING,
                eaglechat=eaglechat.__version__,
                llama_cpp=f"{native}, llama-cpp-python {python}",
                devices=tuple(device.description for device in devices),
                memory=memory(devices),
            )
        )
        worker = threading.Thread(target=self._work, name="engine", daemon=True)
        worker.start()
        for line in self._requests:
            if line.strip() and not self._receive(line):
                break
        self._cancel()
        self._queue.put(None)
        worker.join()

    def _receive(self, line: bytes) -> bool:
        """Act on a request; False ends the service."""
        try:
            request = decode_request(line)
        except ProtocolError as error:
            self._send(Error(id=None, code="protocol", message=f"not understood: {error}"))
            return True
        if isinstance(request, Shutdown):
            return False
        if isinstance(request, Cancel):
            self._cancel(request.id)
        elif isinstance(request, Set):
            for job in list(self._unfinished):
                if job.live is not None:
                    job.live.apply(request)
        else:
            self._enqueue(request)
        return True

    def _enqueue(self, request: Load | Chat | Bench | Unload) -> None:
        live = None
        if isinstance(request, Chat):
            live = Live(request.speculation, request.sampling.temperature)
        job = _Job(request, threading.Event(), live)
        self._unfinished.append(job)
        self._queue.put(job)

    def _cancel(self, request_id: int | None = None) -> None:
        """Cancel a job, or all of them."""
        for job in list(self._unfinished):
            if request_id in (None, job.id):
                job.cancelled.set()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                self._do(job)
            except EngineError as error:
                self._send(Error(id=job.id, code=error.code, message=str(error)))
            except Exception as error:
                traceback.print_exc()
                message = f"the engine failed ({type(error).__name__}: {error}); its log has more"
                self._send(Error(id=job.id, code="internal", message=message))
            self._unfinished.remove(job)
        self._unload()

    def _do(self, job: _Job) -> None:
        if isinstance(job.request, Load):
            self._load(job.request, job.cancelled)
        elif isinstance(job.request, Chat):
            assert job.live is not None
            self._chat(job.request, self._loaded(), job.live, job.cancelled)
        elif isinstance(job.request, Bench):
            BenchJob(job.request, self._loaded(), job.cancelled.is_set, self._send).run()
        else:
            self._unload()
            self._send(Unloaded(id=job.id))

    def _load(self, request: Load, cancelled: threading.Event) -> None:
        def progress(stage: str, fraction: float) -> bool:
            self._send(Loading(id=request.id, stage=stage, fraction=fraction))
            return not cancelled.is_set()

        draft = Path(request.draft).expanduser() if request.draft else None
        headers = check_pair(Path(request.target).expanduser(), draft)
        self._unload()
        self._pair = LoadedPair(headers, request.options, progress)
        self._send(Loaded(id=request.id, pair=self._pair.info))

    def _unload(self) -> None:
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.close()

    def _loaded(self) -> LoadedPair:
        """The pair in memory. Raises NoPairError."""
        if self._pair is None:
            raise NoPairError("no pair is loaded; load one first")
        return self._pair

    def _chat(
        self, request: Chat, pair: LoadedPair, live: Live, cancelled: threading.Event
    ) -> None:
        try:
            self._reply(request, pair, live, cancelled)
        except PromptCancelledError:
            end = unbegun(request.sampling.draw_seed())
            self._send(Done(id=request.id, end=end, stats=StatsFold().stats()))

    def _reply(
        self, request: Chat, pair: LoadedPair, live: Live, cancelled: threading.Event
    ) -> None:
        prompt = pair.prompter.prompt(request.messages, request.thinking, cancelled.is_set)
        fold, reply = StatsFold(), []
        for event in pair.generator.reply(
            prompt,
            request.sampling,
            live,
            seed=request.sampling.draw_seed(),
            turns=pair.prompter.turns(request.messages, request.thinking, cancelled.is_set),
            max_tokens=request.max_tokens,
            stop=request.stop,
            parts=pair.prompter.parts(request.thinking),
            cancelled=cancelled.is_set,
        ):
            if isinstance(event, Round):
                fold.add(event)
                reply += [*event.given, *(token.id for token in event.tokens)]
                self._send(RoundDone(id=request.id, round=event))
            elif isinstance(event, Prefill):
                self._send(PrefillProgress(id=request.id, prefill=event))
            elif isinstance(event, Window):
                self._send(WindowMoved(id=request.id, window=event))
            elif isinstance(event, ReplyEnd):
                pair.prompter.note_reply(prompt, reply)
                self._send(Done(id=request.id, end=event, stats=fold.stats()))
            else:
                self._send(SpeculationStopped(id=request.id, off=event))

    def _send(self, event: AnyEvent) -> None:
        with self._events_lock:
            try:
                self._events.write(encode(event))
                self._events.flush()
            except (BrokenPipeError, ValueError):
                # The client is gone; its end of the input closes too and ends the service.
                self._cancel()

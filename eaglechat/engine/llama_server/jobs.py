"""An engine that has another program compute: a llama-server of the user's.

The program drafts as it was started to, so that a reply that is to be drafted otherwise starts it
again; the operating system still has the models in its page cache then.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec

import eaglechat
from eaglechat.engine.llama_server.arguments import Drafting, drafting_of, server_options
from eaglechat.engine.llama_server.program import Program, version_of
from eaglechat.engine.loading.machine import memory
from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.memory import default_context
from eaglechat.gguf.model_info import model_info
from eaglechat.gguf.preflight import check_pair
from eaglechat.links.base import FINAL, AnsweredRequest, Died
from eaglechat.links.http.link import HttpLink
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.capabilities import Capabilities
from eaglechat.wire.errors import EngineError, LoadCancelledError, ModelLoadError, NoPairError
from eaglechat.wire.protocol import (
    PROTOCOL_VERSION,
    AnyEvent,
    Cancel,
    Chat,
    Error,
    Hello,
    Load,
    Loaded,
    Loading,
    PairInfo,
    Set,
    Unload,
    Unloaded,
)

NAME = "llama-server"
CAN = Capabilities(origins=True, draft_length=True, restarts=True, plain=True)
_LONGEST_SILENCE_S = 86_400.0
"""A prompt may be read for long; that the program has ended is seen at once."""
_LOOK_S = 0.2

Headers = tuple[GGUFHeader, GGUFHeader | None]


class LlamaServerJobs:
    """Does what one client asks, with the program."""

    def __init__(self, program: str, say: Callable[[AnyEvent], None]) -> None:
        self._path, self._tell = program, say
        self._tell_lock = threading.Lock()
        self._queue: queue.SimpleQueue[AnsweredRequest | None] = queue.SimpleQueue()
        self._cancelled: dict[int, threading.Event] = {}
        self._heard: queue.SimpleQueue[AnyEvent | Died] = queue.SimpleQueue()
        self._link: HttpLink | None = None
        self._program: Program | None = None
        self._drafting = Drafting()
        self._pair: tuple[Load, Headers, int] | None = None
        # The program ends with the thread that starts it, where the system sees to that.
        self._worker = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        self._worker.start()

    def take(self, request: AnsweredRequest | Set | Cancel) -> None:
        if isinstance(request, Cancel):
            self.cancel(request.id)
        elif not isinstance(request, Set):
            self._cancelled[request.id] = threading.Event()
            self._queue.put(request)

    def cancel(self, request_id: int | None = None) -> None:
        for one, cancelled in list(self._cancelled.items()):
            if request_id in (None, one):
                cancelled.set()
                if self._link is not None:
                    self._link.hand_over(Cancel(id=one))

    def stop(self) -> None:
        self.cancel()
        self._queue.put(None)
        self._worker.join()

    def say(self, event: AnyEvent) -> None:
        with self._tell_lock:
            self._tell(event)

    def _work(self) -> None:
        try:
            self._greet()
        except ModelLoadError as error:
            self._die(str(error))
        while (request := self._next()) is not None:
            try:
                self._do(request)
            except EngineError as error:
                self.say(Error(id=request.id, code=error.code, message=str(error)))
            except Exception as error:
                traceback.print_exc()
                message = f"the engine failed ({type(error).__name__}: {error}); its log has more"
                self.say(Error(id=request.id, code="internal", message=message))
            del self._cancelled[request.id]
        self._end()

    def _next(self) -> AnsweredRequest | None:
        """The next request; meanwhile the program is watched."""
        while True:
            try:
                return self._queue.get(timeout=_LOOK_S)
            except queue.Empty:
                self._check_program()

    def _greet(self) -> None:
        version = version_of(self._path)
        self.say(
            Hello(
                protocol=PROTOCOL_VERSION,
                engine=NAME,
                can=CAN,
                eaglechat=eaglechat.__version__,
                llama_cpp=f"{version} ({self._path})".strip(),
                devices=(),
                memory=memory(),
            )
        )

    def _do(self, request: AnsweredRequest) -> None:
        if isinstance(request, Load):
            self._load(request)
        elif isinstance(request, Chat):
            self._chat(request)
        elif isinstance(request, Unload):
            self._end()
            self.say(Unloaded(id=request.id))
        else:
            raise EngineError(f"{NAME} cannot be asked that")

    # Loading

    def _load(self, request: Load) -> None:
        if self._is_cancelled(request.id):
            raise LoadCancelledError("the load was cancelled")
        draft = Path(request.draft).expanduser() if request.draft else None
        headers = check_pair(Path(request.target).expanduser(), draft)
        self._end()
        options = request.options
        n_ctx = options.n_ctx or default_context(
            *headers, memory().ram_available, options.kv_type, options.draft_kv_type
        )
        self._pair = request, headers, n_ctx
        began = time.perf_counter()
        try:
            served = self._start(request.id, self._drafting)
        except EngineError:
            self._end()
            raise
        info = _pair_info(headers, request, served, (time.perf_counter() - began) * 1000.0)
        self.say(Loaded(id=request.id, pair=info))

    def _start(self, request_id: int, drafting: Drafting) -> PairInfo:
        """Start the program; what it says of the target it serves. Raises EngineError."""
        assert self._pair is not None
        request, headers, n_ctx = self._pair
        target, draft = (header.path if header else None for header in headers)
        assert target is not None
        options = server_options(target, draft, drafting, request.options, n_ctx)
        program = self._program = Program([self._path, *options])
        self._drafting = drafting
        stages = _Stages(headers, program)

        def proceed() -> bool:
            if stages.has_changed():
                stage, fraction = stages.now
                self.say(Loading(id=request_id, stage=stage, fraction=fraction))
            return not self._is_cancelled(request_id)

        program.wait_until_ready(proceed)
        self._heard = queue.SimpleQueue()
        link = HttpLink(
            ServerSettings(
                name=NAME,
                url=program.url,
                headers={"Authorization": f"Bearer {program.key}"},
                timeout=_LONGEST_SILENCE_S,
            )
        )
        link.open_engine(self._heard.put)
        self._link = link
        link.hand_over(Load(id=request_id, target=""))
        return self._await_loaded(request_id)

    def _await_loaded(self, request_id: int) -> PairInfo:
        while True:
            event = self._hear()
            if isinstance(event, Loaded):
                return event.pair
            if isinstance(event, Died):
                raise ModelLoadError(event.reason)
            if isinstance(event, Error) and event.id == request_id:
                raise ModelLoadError(event.message)

    # Replies

    def _chat(self, request: Chat) -> None:
        if self._pair is None:
            raise NoPairError("no pair is loaded; load one first")
        drafting = drafting_of(request.speculation)
        if drafting != self._drafting or self._link is None:
            self._end()
            try:
                self._start(request.id, drafting)
            except EngineError:
                self._end()
                raise
        assert self._link is not None
        self._link.hand_over(request)
        if self._is_cancelled(request.id):
            self._link.hand_over(Cancel(id=request.id))
        while True:
            event = self._hear()
            if isinstance(event, Died):
                raise EngineError(event.reason)
            if isinstance(event, Error):
                # The connection may have ended because the program did.
                self._check_program(patience_s=1.0)
            if not isinstance(event, Hello):
                self.say(event)
            if isinstance(event, FINAL):
                return

    def _hear(self) -> AnyEvent | Died:
        """What the program's answers come to; the end of this process, where it ends."""
        while True:
            try:
                return self._heard.get(timeout=_LOOK_S)
            except queue.Empty:
                self._check_program()

    def _is_cancelled(self, request_id: int) -> bool:
        return self._cancelled[request_id].is_set()

    # The end

    def _check_program(self, patience_s: float = 0.0) -> None:
        """An engine whose program has gone ends as one would that computes itself."""
        until = time.monotonic() + patience_s
        while (program := self._program) is not None:
            if program.exit_status is not None:
                self._die(f"{program.name} ended by itself ({program.how_it_ended})")
            if time.monotonic() >= until:
                return
            time.sleep(_LOOK_S / 4)

    def _die(self, why: str) -> NoReturn:
        sys.stderr.write(f"{why}\n")
        sys.stderr.flush()
        os._exit(1)

    def _end(self) -> None:
        link, self._link = self._link, None
        program, self._program = self._program, None
        if link is not None:
            link.end_engine(0.0)
        if program is not None:
            program.end()


class _Stages:
    """How far a load is, as far as the program's log tells: which of the files it has opened."""

    def __init__(self, headers: Headers, program: Program) -> None:
        self._sizes = [header.size_bytes if header else 0 for header in headers]
        self._draft = str(headers[1].path) if headers[1] else None
        self._program = program
        self.now = ("", 0.0)

    def has_changed(self) -> bool:
        before = self.now
        if self._draft in self._program.named:
            self.now = "draft", self._sizes[0] / sum(self._sizes)
        elif before[0] != "draft":
            self.now = "target", 0.0
        return self.now != before


def _pair_info(headers: Headers, request: Load, served: PairInfo, load_ms: float) -> PairInfo:
    target, draft = headers
    return msgspec.structs.replace(
        served,
        target=model_info(target),
        draft=model_info(draft) if draft else None,
        # It is this engine's own, and its devices are not known.
        server="",
        devices=(NAME,),
        load_ms=load_ms,
        n_threads=request.options.n_threads or 0,
        kv_type=request.options.kv_type,
        draft_kv_type=request.options.draft_kv_type,
        draft_window=0,
        speculation_off=None if draft else "no draft is loaded",
    )

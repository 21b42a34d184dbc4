"""An engine that has another program compute: a llama-server of the user's.

The program drafts as it was started to, so that a reply that is to be drafted otherwise starts it
again; the operating system still has the models in its page cache then.
"""

from __future__ import annotations

import os
import platform
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

import msgspec

import eaglechat
from eaglechat.engine import crash_memory
from eaglechat.engine.llama_server.about import About, Gpu, about
from eaglechat.engine.llama_server.arguments import NO_DRAFT, Drafting, drafting_of, server_options
from eaglechat.engine.llama_server.program import Program
from eaglechat.engine.loading.machine import choose_threads, memory
from eaglechat.gguf.header import GGUFHeader, model_info
from eaglechat.gguf.memory import default_context
from eaglechat.gguf.preflight import NORM_OUTPUT, NORMS_FEATURES, check_pair
from eaglechat.links.base import FINAL, AnsweredRequest, Died
from eaglechat.links.http.link import HttpLink
from eaglechat.links.rpc import ask_all
from eaglechat.paths import expanded
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.capabilities import Capabilities, Memory
from eaglechat.wire.errors import (
    CrashedError,
    EngineError,
    LoadCancelledError,
    ModelLoadError,
    NoPairError,
    ProgramError,
    RpcError,
)
from eaglechat.wire.left_out import chosen_by_user, next_step
from eaglechat.wire.load_options import LeaveOut, LoadOptions
from eaglechat.wire.protocol import (
    PROTOCOL_VERSION,
    AnyEvent,
    Cancel,
    Chat,
    Done,
    Error,
    Hello,
    Load,
    Loaded,
    Loading,
    PairInfo,
    Render,
    Restarting,
    Set,
    Unload,
    Unloaded,
)
from eaglechat.wire.records import unbegun
from eaglechat.wire.stats import StatsFold

NAME = "llama-server"
CAN = Capabilities(
    origins=True,
    draft_length=True,
    restarts=True,
    plain=True,
    prompt=True,
    goes_on_from_text=True,
)
_LONGEST_SILENCE_S = 86_400.0
"""A prompt may be read for long; that the program has ended is seen at once."""
_LOOK_S = 0.2

Headers = tuple[GGUFHeader, GGUFHeader | None]


class LlamaServerJobs:
    """Does what one client asks, with the program."""

    def __init__(self, program: str, say: Callable[[AnyEvent], None]) -> None:
        self._name, self._tell = program, say
        self._tell_lock = threading.Lock()
        self._queue: queue.SimpleQueue[AnsweredRequest | None] = queue.SimpleQueue()
        self._cancelled: dict[int, threading.Event] = {}
        self._heard: queue.SimpleQueue[AnyEvent | Died] = queue.SimpleQueue()
        self._link: HttpLink | None = None
        self._program: Program | None = None
        self._drafting = NO_DRAFT
        self._pair: tuple[Load, Headers, int] | None = None
        self._about: About | None = None
        self._left_out: tuple[LeaveOut, ...] = ()
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
                # Read once: the worker may end it meanwhile.
                if (link := self._link) is not None:
                    link.hand_over(Cancel(id=one))

    def stop(self) -> None:
        self.cancel()
        self._queue.put(None)
        self._worker.join()

    def say(self, event: AnyEvent) -> None:
        with self._tell_lock:
            self._tell(event)

    def _work(self) -> None:
        self._greet()
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
        """What is wrong with the program is said at each load."""
        with suppress(ProgramError):
            self._about = about(self._name)
        known = self._about
        gpus = known.gpus if known else ()
        self.say(
            Hello(
                protocol=PROTOCOL_VERSION,
                engine=NAME,
                can=CAN,
                eaglechat=eaglechat.__version__,
                llama_cpp=f"{known.version} ({known.path})" if known else "",
                devices=tuple(gpu.description for gpu in gpus),
                memory=_memory(gpus),
            )
        )

    def _do(self, request: AnsweredRequest) -> None:
        if isinstance(request, Load):
            self._load(request)
        elif isinstance(request, Chat):
            self._chat(request)
        elif isinstance(request, Render):
            self._render(request)
        elif isinstance(request, Unload):
            self._unload()
            self.say(Unloaded(id=request.id))
        else:
            raise EngineError(f"{NAME} does not answer this request")

    # Loading

    def _load(self, request: Load) -> None:
        if self._is_cancelled(request.id):
            raise LoadCancelledError("the load was cancelled")
        known = self._about = about(self._name)
        draft = expanded(request.draft) if request.draft else None
        if draft and known.too_old:
            raise ProgramError(known.too_old)
        if request.options.rpc_servers and not known.has_rpc:
            raise ProgramError(known.without_rpc)
        headers = check_pair(expanded(request.target), draft)
        if headers[1] is not None and (
            headers[1].get(NORM_OUTPUT) or headers[1].get(NORMS_FEATURES)
        ):
            raise ProgramError(
                f"{headers[1].path.name} is an EAGLE-3.1 draft, whose norms {NAME} does not have; "
                "eaglechat's own engine runs it: leave engine.llama_server empty"
            )
        if self._program is not None:
            self._unload()
            # More of the GPUs' memory is free now.
            known = self._about = about(self._name)
        options = request.options
        if options.n_threads is None:
            options = msgspec.structs.replace(options, n_threads=choose_threads().count)
            request = msgspec.structs.replace(request, options=options)
        free = _free_memory(options, known.gpus)
        n_ctx = options.n_ctx or default_context(
            *headers, free, options.kv_type, options.draft_kv_type
        )
        self._pair = request, headers, n_ctx
        began = time.perf_counter()
        remembered = crash_memory.remembered(*self._machine())
        self._left_out = remembered.left_out if remembered else ()
        try:
            drafting = drafting_of(request.speculation, draft)
            served = self._start_without_crash(request, drafting)
        except EngineError:
            self._unload()
            raise
        took_ms = (time.perf_counter() - began) * 1000.0
        info = _pair_info(headers, request, served, took_ms, known.gpus)
        info = msgspec.structs.replace(info, left_out=self._left_out)
        self.say(Loaded(id=request.id, pair=info))

    def _start_without_crash(self, request: Load, drafting: Drafting) -> PairInfo:
        """Start the program, and again without one thing more each time it crashes; what worked is
        remembered. Raises EngineError."""
        possible = self._can_leave_out()
        has_crashed = False
        while True:
            try:
                served = self._start(request.id, drafting)
            except CrashedError as error:
                has_crashed = True
                self._end()
                step = next_step(self._left_out, possible, request.options)
                if step is None:
                    settings = ", ".join(chosen_by_user(possible, request.options))
                    cause = f"; the likely cause is a setting of yours: {settings}"
                    raise ModelLoadError(f"{error}{cause if settings else ''}") from error
                self._left_out = step
                self.say(Restarting(id=request.id, crash=error.crash, leave_out=step))
            else:
                if has_crashed:
                    crash_memory.remember(self._left_out, *self._machine())
                return served

    def _machine(self) -> tuple[str, tuple[str, ...]]:
        """The program and what it computes on, to remember for both what works."""
        known = self._about
        assert known is not None
        processor = platform.processor() or platform.machine()
        devices = tuple(gpu.description for gpu in known.gpus)
        return f"{known.path} {known.version}", (processor, *devices)

    def _can_leave_out(self) -> tuple[LeaveOut, ...]:
        """The program has no option for AMX alone."""
        gpus = self._about.gpus if self._about else ()
        return ("extra_buffers", "flash_attention", *(("gpu",) if gpus else ()))

    def _start(self, request_id: int, drafting: Drafting) -> PairInfo:
        """Start the program; what it says of the target it serves. Raises EngineError."""
        assert self._pair is not None
        request, headers, n_ctx = self._pair
        target, draft = (header.path if header else None for header in headers)
        assert target is not None
        options = server_options(
            target, draft, drafting, request.options, n_ctx, leave_out=self._left_out
        )
        assert self._about is not None
        program = self._program = Program([self._about.path, *options])
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
                if event.code == LoadCancelledError.code:
                    raise LoadCancelledError(event.message)
                raise ModelLoadError(event.message)

    def _unload(self) -> None:
        self._pair = None
        self._end()

    # Replies

    def _chat(self, request: Chat) -> None:
        if self._pair is None:
            raise NoPairError("no pair is loaded; load one first")
        drafting = drafting_of(request.speculation, self._pair[0].draft)
        if drafting != self._drafting or self._link is None:
            self._end()
            try:
                self._start(request.id, drafting)
            except LoadCancelledError:
                self._end()
                end = unbegun(request.sampling.draw_seed())
                self.say(Done(id=request.id, end=end, stats=StatsFold().stats()))
                return
            except EngineError:
                self._end()
                raise
        self._relay(request)

    def _render(self, request: Render) -> None:
        if self._link is None:
            raise NoPairError("no pair is loaded; load one first")
        self._relay(request)

    def _relay(self, request: Chat | Render) -> None:
        """Have the program answer it."""
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
                self._die(program.how_it_ended)
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


def _free_memory(options: LoadOptions, gpus: Sequence[Gpu]) -> int:
    """Of the GPUs, here and lent, where all layers go there; else of the RAM.

    Raises RpcError: the program would end where it cannot reach a server."""
    free = sum(gpu.memory_free for gpu in gpus)
    for answer in ask_all(options.rpc_servers):
        if isinstance(answer, RpcError):
            raise answer
        free += answer.free
    return free if free and options.n_gpu_layers < 0 else memory().ram_available


def _memory(gpus: Sequence[Gpu]) -> Memory:
    own = sum(gpu.memory_total for gpu in gpus)
    is_unified = own > 0 and sys.platform == "darwin"
    return msgspec.structs.replace(memory(), gpu=own, unified=is_unified)


def _pair_info(
    headers: Headers, request: Load, served: PairInfo, load_ms: float, gpus: Sequence[Gpu]
) -> PairInfo:
    target, draft = headers
    on = ", ".join([*request.options.rpc_servers, *(gpu.description for gpu in gpus)])
    return msgspec.structs.replace(
        served,
        target=model_info(target),
        draft=model_info(draft) if draft else None,
        # It is this engine's own.
        server="",
        devices=(f"{NAME} with {on}" if on else NAME,),
        load_ms=load_ms,
        n_threads=request.options.n_threads or 0,
        kv_type=request.options.kv_type,
        draft_kv_type=request.options.draft_kv_type,
        draft_window=0,
        speculation_off=None if draft else "no draft is loaded",
    )

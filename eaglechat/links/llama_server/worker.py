"""An engine that has another program compute: the user's llama-server, started by this process.

The program decides at its start how it drafts. So a reply that asks for another draft length starts
it again; the models are in the operating system's page cache then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

import eaglechat
from eaglechat.gguf.header import NO_TEMPLATE, GGUFHeader, model_info
from eaglechat.gguf.memory import default_context
from eaglechat.gguf.preflight import NORM_OUTPUT, NORMS_FEATURES
from eaglechat.links.http.connection import ServerConnection
from eaglechat.links.http.faults import ServerError
from eaglechat.links.http.servers.llama_server import LlamaServer
from eaglechat.links.llama_server.arguments import (
    NO_DRAFT,
    Drafter,
    Drafting,
    drafting_of,
    server_options,
)
from eaglechat.links.llama_server.probe import Gpu, ProbedProgram, gpus_of, probe_program
from eaglechat.links.llama_server.program import Program
from eaglechat.links.local import LocalLink
from eaglechat.links.process import LOG_TAIL_LINES, open_log
from eaglechat.machine import choose_threads, memory
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.cancelling import check
from eaglechat.wire.capabilities import Capabilities
from eaglechat.wire.errors import (
    Cancelled,
    EngineError,
    ModelLoadError,
    NoPairError,
    ProgramError,
    RpcError,
)
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import (
    AUTO,
    PROTOCOL_VERSION,
    Chat,
    DrafterInfo,
    DrafterKind,
    Hello,
    Load,
    Loaded,
    Loading,
    PairInfo,
    Render,
    Unload,
    Unloaded,
)
from eaglechat.wire.rpc import ask_all
from eaglechat.wire.worker import Gone, Job, Say, Worker

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
"""Reading a long prompt may take any time; that the program has ended is noticed at once."""
_ENDS_WITHIN_S = 1.0
"""After a connection broke, the program has this long to turn out to have ended."""


@dataclass(frozen=True)
class CheckedPair:
    """What the headers say of the files of a load, which fit each other."""

    target: GGUFHeader
    draft: GGUFHeader | None
    drafters: tuple[Drafter, ...]
    """All that drafts for the target, the first choice first."""
    no_heads: str | None
    """Why MTP heads cannot draft; None if they can."""


CheckPair = Callable[[Load], CheckedPair]
"""Reads the headers of a load's files. Raises EngineError if they cannot run together, or have not
the drafter that the user chose."""


@dataclass(frozen=True)
class _Pair:
    """What is in force of a load."""

    request: Load
    files: CheckedPair
    drafters: tuple[Drafter, ...]
    """Those that the program can run."""
    undrafted: Mapping[DrafterKind, str]
    """Why it has no drafter of a kind."""
    n_ctx: int


def program_link(program: str, log: Path | None, check_pair: CheckPair) -> LocalLink:
    """A link to the program that engine.llama_server names; its log is as of `ProcessLink`."""
    return LocalLink(partial(ProgramWorker, program, log, check_pair))


class ProgramWorker(Worker):
    """Starts the program for a load, and asks it over HTTP."""

    def __init__(self, program: str, log: Path | None, check_pair: CheckPair, say: Say) -> None:
        super().__init__(say)
        self._name, self._check_pair = program, check_pair
        self._log = open_log(log)
        self._probed: ProbedProgram | None = None
        self._program: Program | None = None
        self._last_lines: tuple[str, ...] = ()
        """The end of what the last program wrote."""
        self._server: ServerConnection | None = None
        self._drafting = NO_DRAFT
        """How the program that runs was started to draft."""
        self._pair: _Pair | None = None

    def begin(self) -> None:
        # What is wrong with the program is said at each load.
        with suppress(ProgramError):
            self._probed = probe_program(self._name)
        known = self._probed
        gpus = known.gpus if known else ()
        gpu_memory = sum(gpu.memory_total for gpu in gpus)
        is_unified = gpu_memory > 0 and sys.platform == "darwin"
        self.say(
            Hello(
                protocol=PROTOCOL_VERSION,
                engine=NAME,
                can=CAN,
                eaglechat=eaglechat.__version__,
                llama_cpp=f"{known.version} ({known.path})" if known else "",
                devices=tuple(gpu.description for gpu in gpus),
                memory=msgspec.structs.replace(memory(), gpu=gpu_memory, unified=is_unified),
            )
        )

    def do(self, job: Job) -> None:
        request = job.request
        try:
            if isinstance(request, Load):
                self._load(job, request)
            elif isinstance(request, Chat):
                self._chat(job, request)
            elif isinstance(request, Render):
                if self._server is None:
                    raise NoPairError("no pair is loaded; load one first")
                self._server.render(job, request)
            elif isinstance(request, Unload):
                self._unload()
                self.say(Unloaded(id=job.id))
            else:
                raise EngineError(f"{NAME} does not answer this request")
        except ServerError:
            program = self._program
            if program is not None and program.ends_within(_ENDS_WITHIN_S):
                # The cause of the broken connection, which is what the user has to hear.
                self._die(program.how_it_ended)
            raise

    def finish(self) -> None:
        self._end_program()
        self._log.close()

    def explain(self, error: Exception) -> str:
        # Standard error may be the terminal that the app draws on: no traceback.
        return f"running {NAME} failed ({type(error).__name__}: {error})"

    def log_tail(self) -> tuple[str, ...]:
        lines = self._program.last_lines if self._program else self._last_lines
        return lines[-LOG_TAIL_LINES:]

    # Loading

    def _load(self, job: Job, request: Load) -> None:
        check()
        known = self._probed = probe_program(self._name)
        if request.options.rpc_servers and not known.has_rpc:
            raise ProgramError(known.without_rpc)
        files = self._check_pair(request)
        draft = files.draft
        if draft is not None and (draft.get(NORM_OUTPUT) or draft.get(NORMS_FEATURES)):
            raise ProgramError(
                f"{draft.path.name} has EAGLE-3.1's norms, which {NAME} does not have; "
                "eaglechat's own engine runs it: leave engine.llama_server empty"
            )
        drafters, undrafted = _drafters(known, files, request)
        if self._program is not None:
            self._unload()
            # More of the GPUs' memory is free now.
            known = self._probed = replace(known, gpus=gpus_of(known.path))
        options = request.options
        if not options.n_threads:
            options = msgspec.structs.replace(options, n_threads=choose_threads().count)
            request = msgspec.structs.replace(request, options=options)
        free = _free_memory(options, known.gpus)
        n_ctx = options.n_ctx or default_context(
            files.target, draft, free, options.kv_type, options.draft_kv_type
        )
        pair = _Pair(request, files, drafters, undrafted, n_ctx)
        began = time.perf_counter()
        try:
            served, self._pair = self._start_as_far_as_possible(job, pair)
        except EngineError:
            self._unload()
            raise
        on = ", ".join([*options.rpc_servers, *(gpu.description for gpu in known.gpus)])
        info = msgspec.structs.replace(
            served,
            target=model_info(files.target),
            drafters=tuple(map(_info, self._pair.drafters)),
            undrafted=dict(self._pair.undrafted),
            # To the client this is an engine of its own, not a server.
            server="",
            devices=(f"{NAME} with {on}" if on else NAME,),
            load_ms=(time.perf_counter() - began) * 1000.0,
            n_threads=options.n_threads,
            speculation_off=_off(self._pair),
            untemplated=(
                None
                if files.target.has_chat_template
                else f"{NO_TEMPLATE}: {NAME} writes the chat as ChatML"
            ),
        )
        self.say(Loaded(id=request.id, pair=info))

    def _start_as_far_as_possible(self, job: Job, pair: _Pair) -> tuple[PairInfo, _Pair]:
        """Start the program; if it does not start with MTP heads that nobody has chosen, start it
        without.

        Returns what it says of the target, and the pair as it runs. Raises EngineError.
        """
        speculation = pair.request.speculation
        drafting = drafting_of(speculation, pair.drafters)
        try:
            return self._start(job, pair, drafting), pair
        except ModelLoadError as error:
            heads = drafting.drafter
            if heads is None or heads.file or speculation.drafter != AUTO:
                raise
            self._end_program()
            undrafted = {**pair.undrafted, heads.kind: f"with MTP heads, {error}"}
            pair = replace(pair, drafters=(), undrafted=undrafted)
            return self._start(job, pair, NO_DRAFT), pair

    def _start(self, job: Job, pair: _Pair, drafting: Drafting) -> PairInfo:
        """Start the program; returns what it says of the target. Raises EngineError."""
        assert self._probed is not None
        target = pair.files.target.path
        options = server_options(target, drafting, pair.request.options, pair.n_ctx)
        program = self._program = Program([self._probed.path, *options], self._log)
        self._drafting = drafting
        self.say(Loading(id=job.id, stage="target", fraction=0.0))
        program.wait_until_ready()
        program.watch(self._die)
        server = self._server = ServerConnection(
            ServerSettings(
                name=NAME,
                url=program.url,
                headers={"Authorization": f"Bearer {program.key}"},
                timeout=_LONGEST_SILENCE_S,
            ),
            self.say,
        )
        try:
            server.open(job)
            served = server.load(job, Load(id=job.id, target=""))
        except Cancelled:
            raise
        except EngineError as error:
            raise ModelLoadError(str(error)) from error
        if isinstance(server.kind, LlamaServer) and drafting.drafter:
            # It counts drafted tokens and does not say whose; nobody else drafts in it.
            server.kind.drafter = drafting.drafter.kind
        return served

    def _unload(self) -> None:
        self._pair = None
        self._end_program()

    # Replies

    def _chat(self, job: Job, request: Chat) -> None:
        if self._pair is None:
            raise NoPairError("no pair is loaded; load one first")
        drafting = drafting_of(request.speculation, self._pair.drafters)
        if drafting != self._drafting or self._server is None:
            self._end_program()
            try:
                self._start(job, self._pair, drafting)
            except EngineError:
                self._end_program()
                raise
        assert self._server is not None
        self._server.chat(job, request)

    # The end

    def _die(self, why: str) -> None:
        """An engine whose program has ended by itself is gone."""
        self.say(Gone(f"the engine stopped because {why}"))

    def _end_program(self) -> None:
        server, self._server = self._server, None
        program, self._program = self._program, None
        if server is not None:
            server.close()
        if program is not None:
            program.end()
            self._last_lines = program.last_lines


def _drafters(
    known: ProbedProgram, files: CheckedPair, request: Load
) -> tuple[tuple[Drafter, ...], dict[DrafterKind, str]]:
    """The drafters of a pair that the program can run, and why it has none of a kind.

    Raises ProgramError if it cannot run what the user has chosen: the draft, or the heads by name.
    """
    drafters, undrafted = list[Drafter](), dict[DrafterKind, str]()
    for one in files.drafters:
        too_old = known.too_old(one.kind)
        if too_old is None:
            drafters.append(one)
        elif one.file or one.kind == request.speculation.drafter:
            raise ProgramError(too_old)
        else:
            undrafted[one.kind] = too_old
    if files.no_heads and "mtp" not in [one.kind for one in drafters]:
        undrafted["mtp"] = files.no_heads
    return tuple(drafters), undrafted


def _off(pair: _Pair) -> str | None:
    """Why nothing is drafted; None if something is."""
    if pair.drafters:
        return None
    return "no draft is loaded" if pair.files.no_heads else pair.undrafted["mtp"]


def _info(drafter: Drafter) -> DrafterInfo:
    if drafter.file is None:
        return DrafterInfo(kind=drafter.kind)
    layers = drafter.file.numbers("{arch}.target_layers") or ()
    return DrafterInfo(kind=drafter.kind, file=model_info(drafter.file), layers=layers)


def _free_memory(options: LoadOptions, gpus: Sequence[Gpu]) -> int:
    """Bytes free on the GPUs, those of RPC servers included; of RAM if not all layers go there.

    Raises RpcError for a server that cannot be reached: the program would end.
    """
    free = sum(gpu.memory_free for gpu in gpus)
    for answer in ask_all(options.rpc_servers):
        if isinstance(answer, RpcError):
            raise answer
        free += answer.free
    return free if free and options.n_gpu_layers < 0 else memory().ram_available

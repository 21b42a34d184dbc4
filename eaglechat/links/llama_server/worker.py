"""An engine that has another program compute: the user's llama-server, started by this process.

The program decides at its start how it drafts. So a reply that asks for another draft length starts
it again; the models are in the operating system's page cache then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

import eaglechat
from eaglechat.gguf.header import NO_TEMPLATE, GGUFHeader, model_info
from eaglechat.gguf.memory import context_size
from eaglechat.gguf.pairing import check_load, pairings, why_no_heads
from eaglechat.gguf.preflight import NORM_OUTPUT, NORMS_FEATURES, Pairing
from eaglechat.links.base import LocalLink
from eaglechat.links.http.faults import ServerError
from eaglechat.links.http.server import ServerWorker
from eaglechat.links.llama_server.probe import Gpu, ProbedProgram, probe_program
from eaglechat.links.llama_server.program import Program, chosen_drafter, server_options
from eaglechat.links.process import open_log, tail
from eaglechat.machine import choose_threads, memory
from eaglechat.rpc import ask_all
from eaglechat.settings.model import ServerSettings
from eaglechat.wire import protocol
from eaglechat.wire.drafters import DrafterKind
from eaglechat.wire.errors import EngineError, ModelLoadError, NoPairError, ProgramError, RpcError
from eaglechat.wire.protocol import LoadOptions
from eaglechat.wire.worker import Say, check

NAME = "llama-server"
CAN = protocol.Capabilities(
    origins=True, draft_length=True, plain=True, prompt=True, goes_on_from_text=True
)
_LONGEST_SILENCE_S = 86_400.0
"""Reading a long prompt may take any time; that the program has ended is noticed at once."""
_ENDS_WITHIN_S = 1.0
"""After a connection broke, the program has this long to turn out to have ended."""


@dataclass(frozen=True)
class _Pair:
    program: str
    target: Path
    options: LoadOptions
    """With the context and the threads that were chosen."""
    drafters: tuple[Pairing, ...]

    def command(self, speculation: protocol.Speculation) -> list[str]:
        drafter = chosen_drafter(speculation, self.drafters)
        return [self.program, *server_options(self.target, drafter, speculation, self.options)]


def program_link(program: str, log: Path | None) -> LocalLink:
    """A link to the program that engine.llama_server names; its log is as of `ProcessLink`."""
    return LocalLink(partial(ProgramWorker, program, log))


class ProgramWorker(ServerWorker):
    """Asks a server that it starts itself, for each load."""

    def __init__(self, program: str, log: Path | None, say: Say) -> None:
        super().__init__(None, say)
        self._name, self._log = program, open_log(log)
        self._program: Program | None = None
        """The one that runs."""
        self._pair: _Pair | None = None

    def begin(self) -> None:
        known, gpus = None, list[Gpu]()
        # What is wrong with the program is said at each load.
        with suppress(ProgramError):
            known = probe_program(self._name)
            gpus = known.gpus()
        gpu_memory = sum(gpu.memory_total for gpu in gpus)
        is_unified = gpu_memory > 0 and sys.platform == "darwin"
        self.say(
            protocol.Hello(
                protocol=protocol.PROTOCOL_VERSION,
                engine=NAME,
                can=CAN,
                eaglechat=eaglechat.__version__,
                llama_cpp=f"{known.version} ({known.path})" if known else "",
                devices=tuple(gpu.description for gpu in gpus),
                memory=msgspec.structs.replace(memory(), gpu=gpu_memory, unified=is_unified),
            )
        )

    def do(self, request: protocol.AnsweredRequest) -> None:
        if isinstance(request, protocol.Load):
            self._start_for(request)
        elif isinstance(request, protocol.Unload):
            self._pair = None
            self._stop()
            self.say(protocol.Unloaded(id=request.id))
        else:
            self._answer_with(request)

    def finish(self) -> None:
        self._stop()
        self._log.close()

    def log_tail(self) -> tuple[str, ...]:
        return tail(self._log)

    def _start_for(self, request: protocol.Load) -> None:
        check()
        known = probe_program(self._name)
        if request.options.rpc_servers and not known.has_rpc:
            raise ProgramError(known.without_rpc)
        target, draft = check_load(request)
        if draft is not None and (draft.get(NORM_OUTPUT) or draft.get(NORMS_FEATURES)):
            raise ProgramError(
                f"{draft.path.name} has EAGLE-3.1's norms, which {NAME} does not have; "
                "eaglechat's own engine runs it: leave engine.llama_server empty"
            )
        drafters, undrafted = _drafters(known, request, target, draft)
        self._pair = None
        # More of the GPUs' memory is free then.
        self._stop()
        given, gpus = request.options, known.gpus()
        free = _free_memory(given, gpus)
        n_ctx = context_size(target, draft, free, given)
        n_threads = given.n_threads or choose_threads().count
        options = msgspec.structs.replace(given, n_ctx=n_ctx, n_threads=n_threads)
        pair = _Pair(known.path, target.path, options, drafters)
        began = time.perf_counter()
        speculation = request.speculation
        try:
            served = self._start(request.id, pair, speculation)
        except ModelLoadError as error:
            heads = chosen_drafter(speculation, drafters)
            if heads is None or heads.file or speculation.drafter != protocol.AUTO:
                raise
            # Nobody has chosen the MTP heads: the target runs without them.
            undrafted[heads.kind] = f"with MTP heads, {error}"
            pair = replace(pair, drafters=())
            served = self._start(request.id, pair, speculation)
        self._pair = pair
        on = ", ".join([*options.rpc_servers, *(gpu.description for gpu in gpus)])
        off = "no draft is loaded" if why_no_heads(target) else undrafted.get("mtp")
        info = msgspec.structs.replace(
            served,
            target=model_info(target),
            drafters=tuple(map(_info, pair.drafters)),
            undrafted=undrafted,
            # To the client this is an engine of its own, not a server.
            server="",
            devices=(f"{NAME} with {on}" if on else NAME,),
            load_ms=(time.perf_counter() - began) * 1000.0,
            n_threads=n_threads,
            speculation_off=None if pair.drafters else off,
            untemplated=(
                None
                if target.has_chat_template
                else f"{NO_TEMPLATE}: {NAME} writes the chat as ChatML"
            ),
        )
        self.say(protocol.Loaded(id=request.id, pair=info))

    def _answer_with(self, request: protocol.AnsweredRequest) -> None:
        """Answer a chat or a render; a chat that asks for another drafting starts the program
        again."""
        pair, program = self._pair, self._program
        if pair is not None and isinstance(request, protocol.Chat):
            wanted = pair.command(request.speculation)
            if program is None or program.command != wanted:
                self._start(request.id, pair, request.speculation)
                program = self._program
        if program is None:
            raise NoPairError
        try:
            super().do(request)
        except ServerError:
            if program.ends_within(_ENDS_WITHIN_S):
                # The cause of the broken connection, which is what the user has to hear.
                self._die(program.how_it_ended)
            raise

    # The program

    def _start(
        self, request_id: int, pair: _Pair, speculation: protocol.Speculation
    ) -> protocol.PairInfo:
        """Start the program in place of the one that runs; returns what it says of the target.

        Raises EngineError, after which none runs.
        """
        self._stop()
        program = self._program = Program(pair.command(speculation), self._log)
        address = ServerSettings(
            name=NAME,
            url=program.url,
            headers={"Authorization": f"Bearer {program.key}"},
            timeout=_LONGEST_SILENCE_S,
        )
        self._reach(address)
        self.say(protocol.Progress(id=request_id, step=protocol.Loading("target", 0.0)))
        try:
            program.wait_until_ready()
            program.watch(self._die)
            served = self._loaded(protocol.Load(id=request_id, target=""))
        except ServerError as error:
            self._stop()
            raise ModelLoadError(str(error)) from error
        except EngineError:
            self._stop()
            raise
        drafter = chosen_drafter(speculation, pair.drafters)
        if drafter:
            # It counts drafted tokens and does not say whose; nobody else drafts in it.
            self._found.kind.drafter = drafter.kind
        return served

    def _stop(self) -> None:
        program, self._program = self._program, None
        if program is not None:
            self._client.close()
            program.end()

    def _die(self, why: str) -> None:
        """An engine whose program has ended by itself is gone."""
        self.die(f"the engine stopped because {why}")


def _drafters(
    known: ProbedProgram, request: protocol.Load, target: GGUFHeader, draft: GGUFHeader | None
) -> tuple[tuple[Pairing, ...], dict[DrafterKind, str]]:
    """The drafters of a pair that the program can run, and why it has none of a kind.

    Raises ProgramError if it cannot run what the user has chosen: the draft, or the heads by name.
    """
    drafters, undrafted = list[Pairing](), dict[DrafterKind, str]()
    for one in pairings(target, draft):
        too_old = known.too_old(one.kind)
        if too_old is None:
            drafters.append(one)
        elif one.file or one.kind == request.speculation.drafter:
            raise ProgramError(too_old)
        else:
            undrafted[one.kind] = too_old
    no_heads = why_no_heads(target)
    if no_heads and "mtp" not in [one.kind for one in drafters]:
        undrafted["mtp"] = no_heads
    return tuple(drafters), undrafted


def _info(drafter: Pairing) -> protocol.DrafterInfo:
    if drafter.file is None:
        return protocol.DrafterInfo(kind=drafter.kind)
    layers = drafter.file.numbers("{arch}.target_layers") or ()
    return protocol.DrafterInfo(kind=drafter.kind, file=model_info(drafter.file), layers=layers)


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

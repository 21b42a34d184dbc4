"""eaglechat's own engine: it loads a pair of models with llama.cpp and generates with them.

It has a process of its own: a failed assertion inside llama.cpp ends that process and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import eaglechat
from eaglechat.engine.drafters.pairing import check_choice, check_pair
from eaglechat.engine.llama import backend, workarounds
from eaglechat.engine.llama.placement import memory
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.engine.loop import Live
from eaglechat.engine.process import pipes
from eaglechat.paths import expanded
from eaglechat.wire.cancelling import check
from eaglechat.wire.errors import NoPairError, SettingsError
from eaglechat.wire.protocol import (
    OWN_ENGINE,
    PROTOCOL_VERSION,
    AnsweredRequest,
    AnyEvent,
    Cancel,
    Chat,
    Done,
    Hello,
    Load,
    Loaded,
    Loading,
    Progress,
    Render,
    Rendered,
    Set,
    Unloaded,
)
from eaglechat.wire.records import ReplyEnd, Round
from eaglechat.wire.stats import SpeculationStats
from eaglechat.wire.worker import Say, Worker


def main() -> int:
    """Serve on this process' own pipes until they close."""
    # A debugger's report of a failed assertion would push the assertion out of the log's tail.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    return pipes.serve(_started)


def _started(say: Say) -> PairWorker:
    # The pipes are made: what this prints goes to the log.
    backend.start_backend(backend.LOG_INFO)
    return PairWorker(say)


class PairWorker(Worker):
    def __init__(self, say: Say) -> None:
        super().__init__(say)
        self._live: dict[int, Live] = {}
        """By the id of a reply that waits or is being written, what `set` can change of it."""
        self._pair: LoadedPair | None = None

    def start(self) -> None:
        # Said here and not in `begin`: Hello comes before any answer to the first line.
        python, native = backend.versions()
        devices = backend.devices()
        self.say(
            Hello(
                protocol=PROTOCOL_VERSION,
                can=OWN_ENGINE,
                eaglechat=eaglechat.__version__,
                llama_cpp=f"{native}, llama-cpp-python {python}",
                devices=tuple(device.description for device in devices),
                memory=memory(devices),
            )
        )
        super().start()

    def take(self, message: AnsweredRequest | Set | Cancel) -> None:
        if isinstance(message, Set):
            for live in list(self._live.values()):
                live.apply(message)
            return
        if isinstance(message, Chat):
            self._live[message.id] = Live(message.speculation, message.sampling.temperature)
        super().take(message)

    def do(self, request: AnsweredRequest) -> None:
        if isinstance(request, Load):
            self._load(request)
        elif isinstance(request, Chat):
            try:
                pair, live = self._loaded(), self._live[request.id]
                write_reply(request, pair, live, self.say)
            finally:
                del self._live[request.id]
        elif isinstance(request, Render):
            self.say(rendered(request, self._loaded()))
        else:
            self._unload()
            self.say(Unloaded(id=request.id))

    def finish(self) -> None:
        self._unload()

    def _unload(self) -> None:
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.close()

    def _load(self, request: Load) -> None:
        def progress(stage: str, fraction: float) -> None:
            self.say(Progress(id=request.id, step=Loading(stage, fraction)))

        check()
        draft = expanded(request.draft) if request.draft else None
        headers = check_pair(expanded(request.target), draft)
        check_choice(*headers, request.speculation.drafter)
        self._unload()
        files = [header.path for header in headers if header is not None]
        leave_out = tuple(dict.fromkeys((*workarounds.for_models(files), *request.leave_out)))
        self._pair = LoadedPair(headers, request.options, progress, leave_out)
        if request.crash:
            # The load crashed with more, and worked with this.
            workarounds.remember(files, leave_out, request.crash)
        self.say(Loaded(id=request.id, pair=self._pair.info))

    def _loaded(self) -> LoadedPair:
        """Raises NoPairError."""
        if self._pair is None:
            raise NoPairError
        return self._pair


def write_reply(
    request: Chat,
    pair: LoadedPair,
    live: Live,
    say: Callable[[AnyEvent], None],
) -> None:
    """Answers a `chat` request on a loaded pair: a Done ends its events. Raises EngineError,
    Cancelled before the reply has begun."""
    if why := pair.info.no_drafter(live.speculation.drafter):
        raise SettingsError(f"{live.speculation.drafter} cannot draft: {why}")
    asked = pair.prompter.conversation(request.messages, request.thinking, request.begun)
    stats, reply, seed = SpeculationStats(), list[int](), request.sampling.draw_seed()
    for record in pair.generator.reply(
        asked,
        request.sampling,
        live,
        seed=seed,
        max_tokens=request.max_tokens,
        stop=request.stop,
        top=request.top,
    ):
        if isinstance(record, ReplyEnd):
            asked.note_reply(reply)
            say(Done(id=request.id, end=record, stats=stats))
            continue
        if isinstance(record, Round):
            reply += [*record.given, *(t.id for t in record.tokens if t.id is not None)]
            stats = stats.plus(record)
        say(Progress(id=request.id, step=record))
    pair.generator.keep()


def rendered(request: Render, pair: LoadedPair) -> Rendered:
    """Answers a `render` request with the prompt that a reply would read.

    Raises PromptError, Cancelled.
    """
    asked = pair.prompter.conversation(request.messages, request.thinking)
    first_turn, tokens = pair.generator.would_read(asked, request.max_tokens)
    checkpoints, checkpoint_bytes = pair.generator.checkpoints
    return Rendered(
        id=request.id,
        runs=pair.prompter.runs(tokens),
        tokens=len(tokens),
        first_turn=first_turn,
        checkpoints=checkpoints,
        checkpoint_bytes=checkpoint_bytes,
    )

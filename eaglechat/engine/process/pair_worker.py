"""eaglechat's own engine: it loads a pair of models with llama.cpp and generates with them.

It has a process of its own: a failed assertion inside llama.cpp ends that process and nothing else.
"""

from __future__ import annotations

import os

import eaglechat
from eaglechat.engine.drafters.pairing import check_choice, check_pair
from eaglechat.engine.live import Live
from eaglechat.engine.llama import backend, workarounds
from eaglechat.engine.llama.placement import memory
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.engine.process import pipes
from eaglechat.engine.process.chat_job import rendered, write_reply
from eaglechat.paths import expanded
from eaglechat.wire.cancelling import check
from eaglechat.wire.errors import NoPairError
from eaglechat.wire.protocol import (
    OWN_ENGINE,
    PROTOCOL_VERSION,
    AnsweredRequest,
    Cancel,
    Chat,
    Hello,
    Load,
    Loaded,
    Loading,
    Progress,
    Render,
    Set,
    Unloaded,
)
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
            raise NoPairError("no pair is loaded; load one first")
        return self._pair

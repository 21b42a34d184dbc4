"""The engine process: it loads a pair of models with llama.cpp and generates with them. Requests
come on standard input, events go to standard output, logs to standard error.

It is a process of its own: a failed assertion inside llama.cpp ends that process and nothing else.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO

import eaglechat
from eaglechat.engine.llama import backend, workarounds
from eaglechat.engine.llama.placement import memory
from eaglechat.engine.loop import Live
from eaglechat.engine.pair import LoadedPair
from eaglechat.gguf.pairing import check_load
from eaglechat.wire import protocol
from eaglechat.wire.errors import NoPairError, SettingsError
from eaglechat.wire.protocol import ProtocolError, decode_request, encode
from eaglechat.wire.records import ReplyEnd, Round
from eaglechat.wire.stats import SpeculationStats
from eaglechat.wire.worker import Died, Say, Worker, check

_CLIENT_HAS_S = 0.8
"""Seconds from SIGTERM to the end of this process."""


def main() -> int:
    """Serve on this process' own pipes until they close."""
    # A debugger's report of a failed assertion would push the assertion out of the log's tail.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    # Ctrl+C in the client's terminal reaches this process too; the client decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    events = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever native code prints must not stand between the events: it goes to the log.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    backend.start_backend(backend.LOG_INFO)
    client = ClientPipes(sys.stdin.buffer, events)

    def end_soon(*_: object) -> None:
        # `timeout` and batch systems send SIGTERM to the client too: the client still hears the
        # ends of the replies that this cancels.
        end = threading.Timer(_CLIENT_HAS_S, os._exit, (128 + signal.SIGTERM,))
        end.daemon = True
        end.start()
        client.worker.cancel()

    signal.signal(signal.SIGTERM, end_soon)
    client.serve()
    return 0


class ClientPipes:
    """Has a worker answer the requests of one client, a line each."""

    def __init__(self, requests: BinaryIO, events: BinaryIO) -> None:
        self._requests, self._events = requests, events
        self.worker = PairWorker(self._send)

    def serve(self) -> None:
        """Read requests until a shutdown or the end of the input."""
        self.worker.start()
        for line in self._requests:
            if not line.strip():
                continue
            try:
                request = decode_request(line)
            except ProtocolError as error:
                message = f"not understood: {error}"
                self.worker.say(
                    protocol.Error(id=error.request_id, code="protocol", message=message)
                )
                continue
            if isinstance(request, protocol.Shutdown):
                break
            self.worker.take(request)
        self.worker.shut_down()

    def _send(self, event: protocol.AnyEvent | Died) -> None:
        if isinstance(event, Died):
            # The client knows an engine's death by the end of its process, and the reason by the
            # last line of its log.
            sys.stderr.write(f"{event.why}\n")
            sys.stderr.flush()
            os._exit(1)
        try:
            line = encode(event)
        except ProtocolError as error:
            # This event's request has failed.
            request_id = None if isinstance(event, protocol.Hello) else event.id
            self.worker.cancel(request_id)
            kind = type(event).__name__
            message = f"the engine cannot encode its answer ({kind}): {error}"
            line = encode(protocol.Error(id=request_id, code="internal", message=message))
        try:
            self._events.write(line)
            self._events.flush()
        except OSError:
            # The client is gone; its end of the input closes too and ends the service.
            self.worker.cancel()


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
            protocol.Hello(
                protocol=protocol.PROTOCOL_VERSION,
                can=protocol.OWN_ENGINE,
                eaglechat=eaglechat.__version__,
                llama_cpp=f"{native}, llama-cpp-python {python}",
                devices=tuple(device.description for device in devices),
                memory=memory(devices),
            )
        )
        super().start()

    def take(self, message: protocol.AnsweredRequest | protocol.Set | protocol.Cancel) -> None:
        if isinstance(message, protocol.Set):
            for live in list(self._live.values()):
                live.apply(message)
            return
        if isinstance(message, protocol.Chat):
            self._live[message.id] = Live(message.speculation, message.sampling.temperature)
        super().take(message)

    def do(self, request: protocol.AnsweredRequest) -> None:
        if isinstance(request, protocol.Load):
            self._load(request)
        elif isinstance(request, protocol.Chat):
            try:
                pair, live = self._loaded(), self._live[request.id]
                write_reply(request, pair, live, self.say)
            finally:
                del self._live[request.id]
        elif isinstance(request, protocol.Render):
            self.say(rendered(request, self._loaded()))
        else:
            self._unload()
            self.say(protocol.Unloaded(id=request.id))

    def finish(self) -> None:
        self._unload()

    def _unload(self) -> None:
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.close()

    def _load(self, request: protocol.Load) -> None:
        def progress(stage: str, fraction: float) -> None:
            self.say(protocol.Progress(id=request.id, step=protocol.Loading(stage, fraction)))

        check()
        headers = check_load(request)
        self._unload()
        files = [header.path for header in headers if header is not None]
        leave_out = tuple(dict.fromkeys((*workarounds.for_models(files), *request.leave_out)))
        self._pair = LoadedPair(headers, request.options, progress, leave_out)
        if request.crash:
            # The load crashed with more, and worked with this.
            workarounds.remember(files, leave_out, request.crash)
        self.say(protocol.Loaded(id=request.id, pair=self._pair.info))

    def _loaded(self) -> LoadedPair:
        """Raises NoPairError."""
        if self._pair is None:
            raise NoPairError
        return self._pair


def write_reply(
    request: protocol.Chat, pair: LoadedPair, live: Live, say: Callable[[protocol.AnyEvent], None]
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
        # A seed that was asked for decides the reply.
        draws_drafts=request.sampling.seed is None,
        max_tokens=request.max_tokens,
        stop=request.stop,
        top=request.top,
    ):
        if isinstance(record, ReplyEnd):
            asked.note_reply(reply)
            say(protocol.Done(id=request.id, end=record, stats=stats))
            continue
        if isinstance(record, Round):
            reply += [*record.given, *(t.id for t in record.tokens if t.id is not None)]
            stats = stats.plus(record)
        say(protocol.Progress(id=request.id, step=record))
    pair.generator.keep()


def rendered(request: protocol.Render, pair: LoadedPair) -> protocol.Rendered:
    """Answers a `render` request with the prompt that a reply would read.

    Raises PromptError, Cancelled.
    """
    asked = pair.prompter.conversation(request.messages, request.thinking)
    first_turn, tokens = pair.generator.would_read(asked, request.max_tokens)
    saved = pair.generator.cache.checkpoints
    return protocol.Rendered(
        id=request.id,
        runs=pair.prompter.runs(tokens),
        tokens=len(tokens),
        first_turn=first_turn,
        checkpoints=len(saved),
        checkpoint_bytes=saved.n_bytes,
    )

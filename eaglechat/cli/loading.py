"""The engine of a command: it starts, loads a pair and answers, with progress and Ctrl+C."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from eaglechat import own_python, paths
from eaglechat.cli.status import complain
from eaglechat.hub.fit import Machine
from eaglechat.hub.local import passes
from eaglechat.links.base import ENGINE_DIED, Lifecycle, Link
from eaglechat.links.crashes import starts_again
from eaglechat.links.process import ProcessLink
from eaglechat.settings.model import ServerSettings, Settings
from eaglechat.wire import protocol
from eaglechat.wire.errors import Cancelled, EngineError
from eaglechat.wire.protocol import (
    Answer,
    AnsweredRequest,
    Cancel,
    Error,
    Hello,
    Load,
    Loaded,
    PairInfo,
)
from eaglechat.wire.records import Prefill, Window

if TYPE_CHECKING:
    from pathlib import Path

    from eaglechat.cli.progress import Progress
    from eaglechat.hub.local.pairs import Pair

PATIENCE_S = 1.0
"""Work that takes longer than this shows its progress."""
_LOOK_S = 0.1
"""How often the wait for answers looks for Ctrl+C."""
_HELLO_S = 20.0
"""How long an engine may take to start when only its machine's memory is asked for."""
_LOG_SAYS_MORE = ("load", "internal", ENGINE_DIED)


def engine_link(settings: Settings, log: Path | None) -> Link:
    """The link to the engine of the settings, which is not started yet; `log` is as of
    `ProcessLink`."""
    if settings.engine.command:
        return ProcessLink(settings.engine.command, log)
    if program := settings.engine.llama_server:
        from eaglechat.links.llama_server.worker import program_link  # reads the HTTP client

        return program_link(program, log)
    return ProcessLink(own_python.command("eaglechat", "engine"), log)


def start_engine(settings: Settings) -> Link:
    """Start the engine of the settings. Raises EngineError."""
    link = engine_link(settings, log=None)
    link.start()
    return link


def machine_of_engine(settings: Settings) -> Machine:
    """The memory of the machine that runs pairs, as its engine reports it."""
    try:
        link = start_engine(settings)
    except EngineError:
        return None
    ended: list[Lifecycle] = []
    link.watch(ended.append)
    until = time.monotonic() + _HELLO_S
    try:
        while not ended and time.monotonic() < until:
            link.pump(_LOOK_S)
        return link.hello.memory if link.hello is not None else None
    finally:
        link.close()


class CommandEngine:
    """An engine that lives as long as a command. Ctrl+C cancels its current request."""

    def __init__(
        self, settings: Settings, interrupt: Interrupt, server: ServerSettings | None = None
    ) -> None:
        """Raises EngineError."""
        self._settings, self._interrupt = settings, interrupt
        if server is None:
            self._link = start_engine(settings)
        else:
            from eaglechat.links.http.server import server_link  # reads the HTTP client

            self._link = server_link(server)
            self._link.start()

    def __enter__(self) -> CommandEngine:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self._link.close()

    @property
    def hello(self) -> Hello:
        """The engine's first message. Set once the engine has answered, until it dies."""
        assert self._link.hello is not None
        return self._link.hello

    @property
    def link(self) -> Link:
        return self._link

    def pump(self) -> None:
        """Hand over what the engine has said; waits a moment for it. Raises EngineError."""
        self._link.pump(_LOOK_S)

    def load(self, pair: Pair) -> PairInfo:
        """Load a pair. Raises EngineError, and Cancelled after Ctrl+C."""
        _, draft = pair.to_load
        load = Load(
            target=self._target(pair),
            draft=draft,
            options=self._settings.to_load_options(),
            speculation=self._settings.speculation,
        )
        *_, loaded = self.ask(load)
        assert isinstance(loaded, Loaded)
        if not self._settings.engine.command:
            passes.note(paths.state_dir(), loaded.pair)
        return loaded.pair

    def _target(self, pair: Pair) -> str:
        """The path of the target, or of its copy in the form that drafts fastest here."""
        if not pair.reencode:
            return pair.to_load[0]
        from eaglechat.hub.local.forms import target_to_load

        bars, is_new = _bars(), False

        def follow(fraction: float) -> None:
            nonlocal is_new
            is_new = True
            if self._interrupt.happened:
                raise Cancelled("the form of the target was not yet chosen")
            bars.show("measuring which form drafts fastest (only once)", fraction, 1.0)

        try:
            found = target_to_load(pair, self._settings, follow)
        finally:
            bars.close()
        if found.problem:
            complain(found.problem)
        elif found.note and is_new:
            complain(found.note)
        return str(found.target)

    def ask(self, request: AnsweredRequest) -> Iterator[Answer]:
        """Send a request and yield its answers up to the last. Raises EngineError for an Error."""
        bars = _bars()
        heard: deque[Answer] = deque()
        request_id = self._link.request(request, heard.append)
        is_over = is_cancelled = False
        try:
            while not is_over:
                if self._interrupt.happened and not is_cancelled:
                    is_cancelled = True
                    self._cancel(request_id)
                self.pump()
                while heard:
                    event = heard.popleft()
                    is_over = not isinstance(event, protocol.Progress)
                    _show(bars, event)
                    if isinstance(event, Error):
                        raise self.failure(event)
                    yield event
        finally:
            bars.close()
            if not is_over:
                self._link.send(Cancel(id=request_id))

    def _cancel(self, request_id: int) -> None:
        if self._link.hello is None:
            # An engine that has not started may never answer a Cancel.
            raise Cancelled("the engine had not started yet")
        self._link.send(Cancel(id=request_id))

    def failure(self, error: Error) -> EngineError:
        """An error of the engine, with the end of its log where that says more."""
        if error.code == Cancelled.code:
            return Cancelled(error.message)
        if error.code not in _LOG_SAYS_MORE:
            return EngineError(error.message)
        log = "".join(f"\n  {line}" for line in self._link.log_tail())
        return EngineError(f"{error.message}; its log ends with:{log}" if log else error.message)


def _bars() -> Progress:
    """Bars for work that may take long; they vanish at its end."""
    from eaglechat.cli.progress import Progress  # Rich's bars, which the app does without

    return Progress(vanish=True, after_s=PATIENCE_S)


def _show(bars: Progress, event: Answer) -> None:
    """Draw what comes before a reply: loading the pair, reading the prompt."""
    match event.step if isinstance(event, protocol.Progress) else None:
        case protocol.Loading(stage, fraction):
            what = "asking the server" if stage == "server" else f"loading the {stage}"
            bars.show(what, fraction, 1.0)
        case protocol.Restarting(crash, leave_out, log):
            complain(starts_again(crash, leave_out, log))
        case Prefill(done, total):
            bars.show("reading the prompt", done, total, f"{done:,} of {total:,} tokens")
        case Window():
            pass
        case _:
            bars.close()


class Interrupt:
    """Turns the first Ctrl+C into a flag, so that the text generated so far is kept; the second
    ends the program. SIGTERM, which `timeout` and batch systems send, counts as Ctrl+C."""

    def __init__(self) -> None:
        self.happened = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        if self.happened:
            raise KeyboardInterrupt
        self.happened = True

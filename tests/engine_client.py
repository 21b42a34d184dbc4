"""A client for tests: it asks any engine, anywhere, and keeps all that the engine says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

from eaglechat.links.base import Lifecycle, Link, LocalLink
from eaglechat.links.process import ProcessLink
from eaglechat.wire import protocol as p
from eaglechat.wire.protocol import LoadOptions
from eaglechat.wire.records import Round
from eaglechat.wire.worker import Died
from tests.waiting import PATIENCE_S, until

End = TypeVar("End", bound=p.Event)


def load(files: tuple[Path, Path | None], **options: object) -> p.Load:
    """A load of a target and its draft, if it has one."""
    target, draft = files
    wanted = LoadOptions(**{"n_threads": 1, **options})  # type: ignore[arg-type]
    return p.Load(target=str(target), draft=str(draft) if draft else None, options=wanted)


@dataclass
class Asked:
    """A request and what came of it."""

    id: int
    events: list[p.Answer]

    @property
    def is_over(self) -> bool:
        return bool(self.events) and not isinstance(self.events[-1], p.Progress)

    @property
    def last(self) -> p.Answer:
        return self.events[-1]

    @property
    def rounds(self) -> list[Round]:
        return self.of(Round)

    @property
    def text(self) -> str:
        return "".join(round_.text for round_ in self.rounds)

    def of(self, kind: type) -> list:
        """The events of a kind, or the steps of progress."""
        said = [event.step if isinstance(event, p.Progress) else event for event in self.events]
        return [one for one in said if isinstance(one, kind)]


@dataclass
class Client:
    """Collects all that a link says, in the order in which it does."""

    link: Link
    files: tuple[Path, Path] = (Path("m"), Path("m"))
    """The target and the draft that `load` names."""
    kill: Callable[[], None] | None = None
    """Ends the engine as a crash would; None for one that cannot die alone."""
    kind: str = "http"
    """Of the engine: a parameter of the fixture `client` of tests/links."""
    patience_s: float = PATIENCE_S
    heard: list[p.Answer | Lifecycle] = field(default_factory=list)
    latest: Asked = field(default_factory=lambda: Asked(0, []))
    """The last request."""

    def __post_init__(self) -> None:
        self.link.watch(self.heard.append)

    def until(self, condition: Callable[[], object], what: str = "what was waited for") -> None:
        until(
            condition,
            lambda: f"{what}; heard {self.heard[-5:]}; logged {self.link.log_tail()}",
            self.patience_s,
            lambda: self.link.pump(0.05),
        )

    def ready(self) -> p.Hello:
        self.link.start()
        self.until(lambda: self.link.hello is not None, "hello")
        assert self.link.hello is not None
        return self.link.hello

    def ask(self, request: p.AnsweredRequest) -> Asked:
        """Send a request, without waiting."""
        events: list[p.Answer] = []

        def hear(event: p.Answer) -> None:
            events.append(event)
            self.heard.append(event)

        self.latest = Asked(self.link.request(request, hear), events)
        return self.latest

    def answer(self, request: p.AnsweredRequest) -> Asked:
        """Send a request and wait for its end."""
        asked = self.ask(request)
        self.end(asked)
        return asked

    def expect(self, kind: type[End], request: p.AnsweredRequest) -> End:
        """Send a request and wait for its end, which has to be of this kind."""
        last = self.answer(request).last
        assert isinstance(last, kind), last
        return last

    def end(self, *asked: Asked) -> None:
        self.until(lambda: all(one.is_over for one in asked), "the end of a request")

    def load(self, *, draft: bool = True) -> p.Load:
        return load(self.files if draft else (self.files[0], None))

    def death(self) -> Died:
        """Wait for the engine's end."""
        self.until(lambda: self.died is not None, "the end of the engine")
        assert self.died is not None
        return self.died

    @property
    def died(self) -> Died | None:
        """How the engine ended the last time; None if it never did."""
        return next((news for news in reversed(self.heard) if isinstance(news, Died)), None)

    @property
    def process(self) -> psutil.Process:
        assert isinstance(self.link, ProcessLink)
        assert self.link._running is not None
        return psutil.Process(self.link._running.process.pid)


def engine_process(command: Sequence[str], log: Path, patience_s: float = PATIENCE_S) -> Client:
    """A client of an engine process, which this starts; close its link."""
    client = Client(ProcessLink(command, log), patience_s=patience_s)
    client.link.start()
    return client


def engine_in_this_process() -> LocalLink:
    """eaglechat's own engine without a process: quicker to start."""
    from eaglechat.engine.llama import backend
    from eaglechat.engine.process import PairWorker

    backend.start_backend(backend.LOG_ERRORS)
    return LocalLink(PairWorker)

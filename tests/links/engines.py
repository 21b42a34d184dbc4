"""Engines of every kind behind the same link, and a client that collects what it is told."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from eaglechat.links.base import FINAL, AnsweredRequest, Lifecycle, Link
from eaglechat.wire import protocol as p
from eaglechat.wire.bench_records import BenchPrompt
from eaglechat.wire.load_options import LoadOptions

ROOT = Path(__file__).parent.parent.parent
ENGINE = [sys.executable, "-m", "eaglechat", "engine"]
PATIENCE_S = 60
OUR_OWN = ["process", "local", "scripted"]
of_our_own = pytest.mark.parametrize("client", OUR_OWN, indirect=True)
"""For what somebody else's server does not do."""

BENCH = p.Bench(prompts=(BenchPrompt("cat", "the cat sat"),), n=(2,), repeats=2, max_tokens=8)

News = p.Answer | Lifecycle


@dataclass
class Asked:
    """A request and what came of it."""

    id: int
    events: list[p.Answer]

    @property
    def is_over(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], FINAL)

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class Client:
    """Collects all that a link says, in the order in which it does."""

    link: Link
    files: tuple[Path, Path]
    kill: Callable[[], None] | None = None
    """Ends the engine as a crash would; None for one that cannot die alone."""
    kind: str = "http"
    """Of the engine: a parameter of the fixture `client`."""
    heard: list[News] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.link.watch(self.heard.append)

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"never came: {what}; heard {self.heard[-5:]}"
            self.link.pump(0.05)

    def ready(self) -> p.Hello:
        self.link.start()
        self.until(lambda: self.link.hello is not None, "hello")
        assert self.link.hello is not None
        return self.link.hello

    def ask(self, request: AnsweredRequest) -> Asked:
        """Send a request, without waiting."""
        events: list[p.Answer] = []

        def hear(event: p.Answer) -> None:
            events.append(event)
            self.heard.append(event)

        return Asked(self.link.request(request, hear), events)

    def answer(self, request: AnsweredRequest) -> Asked:
        """Send a request and wait for its end."""
        asked = self.ask(request)
        self.end(asked)
        return asked

    def end(self, *asked: Asked) -> None:
        self.until(lambda: all(one.is_over for one in asked), "the end of a request")

    def load(self, *, draft: bool = True) -> p.Load:
        target, with_it = self.files
        options = LoadOptions(n_threads=1)
        return p.Load(target=str(target), draft=str(with_it) if draft else None, options=options)


def chat(**changes: object) -> p.Chat:
    """A greedy reply of 40 tokens."""
    fields: dict[str, object] = {
        "messages": (p.Message(role="user", content="the cat sat on the mat"),),
        "sampling": p.Sampling(temperature=0.0),
        "speculation": p.Speculation(n_draft_max=3),
        "max_tokens": 40,
    }
    return p.Chat(**{**fields, **changes})  # type: ignore[arg-type]

"""An engine in a process of its own, and what it says."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from eaglechat.links.base import (
    AnsweredRequest,
    Died,
    Ready,
    Starting,
)
from eaglechat.links.process import ProcessLink
from eaglechat.wire import protocol as p
from eaglechat.wire.load_options import LoadOptions
from tests.links.engines import PATIENCE_S

USER = p.Message(role="user", content="the cat sat on the mat")
GREEDY = p.Sampling(temperature=0.0)

Event = p.Answer | Starting | Ready | Died


@dataclass
class Client:
    """Collects what an engine says and waits for what matters."""

    engine: ProcessLink
    log: Path
    heard: list[Event] = field(default_factory=list)
    request_id: int = 0

    def until(self, kind: type | tuple[type, ...]) -> list[Event]:
        """All events up to the first of this kind."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := [i for i, event in enumerate(self.heard) if isinstance(event, kind)]):
            if self.heard and isinstance(self.heard[-1], Died):
                pytest.fail(f"the engine died: {self.heard[-1]}")
            assert time.monotonic() < deadline, f"no {kind} among {self.heard[-5:]}"
            self.engine.pump(0.1)
        events = self.heard[: found[0] + 1]
        del self.heard[: found[0] + 1]
        return events

    def request(self, message: AnsweredRequest) -> None:
        self.request_id = self.engine.request(message, self.heard.append)

    def load(self, files: tuple[Path, Path | None], **options: int) -> list[Event]:
        target, draft = files
        self.request(
            p.Load(
                target=str(target),
                draft=None if draft is None else str(draft),
                options=LoadOptions(n_threads=1, **options),
            )
        )
        return self.until((p.Loaded, p.Error))

    def chat(self, **options: object) -> None:
        defaults = {"messages": (USER,), "sampling": GREEDY, "max_tokens": 40}
        self.request(p.Chat(**{**defaults, **options}))


def of(events: list[Event], kind: type) -> list:
    return [event for event in events if isinstance(event, kind)]


def process_of(client: Client) -> psutil.Process:
    return psutil.Process(client.engine.pid)

"""Engines for tests: in this process, and in one of its own with what it has said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from eaglechat.links.base import Died, Lifecycle
from eaglechat.links.process import ProcessLink
from eaglechat.links.worker import LocalLink
from eaglechat.wire import protocol as p

_LAST = (p.Loaded, p.Done, p.Unloaded, p.Error)


def engine_in_this_process() -> LocalLink:
    """eaglechat's own engine without a process: quicker to start."""
    from eaglechat.engine.llama import backend
    from eaglechat.engine.process.pair_worker import PairWorker

    backend.start_backend(backend.LOG_ERRORS)
    return LocalLink(PairWorker)


class EngineClient:
    """Started at once, by this command line; close it. `patience_s` is the longest wait."""

    def __init__(self, command: Sequence[str], log: Path, patience_s: float = 120.0) -> None:
        self.link = ProcessLink(command, log)
        self.log = log
        self._patience_s = patience_s
        self.news: list[Lifecycle] = []
        self.heard: list[p.Answer] = []
        self.link.watch(self.news.append)
        self.link.start()

    def ask(self, request: p.Load | p.Chat | p.Unload) -> p.Answer:
        """The last answer to a request."""
        self.begin(request)
        self.until(lambda: bool(self.heard) and isinstance(self.heard[-1], _LAST))
        return self.heard[-1]

    def begin(self, request: p.Load | p.Chat | p.Unload) -> int:
        self.heard.clear()
        return self.link.request(request, self.heard.append)

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(int(self._patience_s / 0.1)):
            if holds():
                return
            self.link.pump(0.1)
        raise AssertionError(f"it never came to hold; {self.log.read_text(errors='replace')}")

    @property
    def rounds(self) -> list[p.RoundDone]:
        return [event for event in self.heard if isinstance(event, p.RoundDone)]

    @property
    def died(self) -> Died | None:
        """Its last death."""
        return next((news for news in reversed(self.news) if isinstance(news, Died)), None)

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.link.pid)

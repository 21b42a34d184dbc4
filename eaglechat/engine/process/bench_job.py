"""A bench as the engine process runs it: progress while it measures, and each run as it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from eaglechat.engine.bench import measure as bench
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.wire.bench_records import BenchPrompt
from eaglechat.wire.errors import BenchFailedError
from eaglechat.wire.protocol import (
    AnyEvent,
    Bench,
    BenchDone,
    BenchProgress,
    BenchRunDone,
    Speculation,
)
from eaglechat.wire.records import Round

_PROGRESS_EVERY_S = 0.25


class BenchJob:
    """Answers one `bench` request on a loaded pair."""

    def __init__(
        self,
        request: Bench,
        pair: LoadedPair,
        cancelled: Callable[[], bool],
        send: Callable[[AnyEvent], None],
    ) -> None:
        self._request = request
        self._pair = pair
        self._cancelled = cancelled
        self._send = send
        self._settings = bench.settings_of(request.n)
        self._write = bench.writer(pair, cancelled)
        self._done = 0
        self._told = 0.0

    def run(self) -> None:
        """Raises EngineError."""
        request = self._request
        if self._pair.info.speculation_off:
            raise BenchFailedError(
                f"there is nothing to compare: {self._pair.info.speculation_off}"
            )
        for run in bench.measure(
            self._watched,
            request.prompts,
            self._settings,
            repeats=request.repeats,
            max_tokens=request.max_tokens,
            cancelled=self._cancelled,
        ):
            self._done += 1
            self._send(BenchRunDone(id=request.id, run=run))
        self._send(BenchDone(id=request.id, cancelled=self._cancelled()))

    def _watched(
        self, prompt: BenchPrompt, speculation: Speculation, max_tokens: int
    ) -> Iterator[object]:
        """The reply's events, with a word about it now and then."""
        tokens = 0
        for event in self._write(prompt, speculation, max_tokens):
            if isinstance(event, Round):
                tokens += len(event.tokens)
            if time.monotonic() - self._told >= _PROGRESS_EVERY_S:
                self._told = time.monotonic()
                self._tell(prompt, speculation, tokens)
            yield event

    def _tell(self, prompt: BenchPrompt, speculation: Speculation, tokens: int) -> None:
        request = self._request
        self._send(
            BenchProgress(
                id=request.id,
                done=self._done,
                total=len(request.prompts) * request.repeats * len(self._settings),
                prompt=prompt.name,
                setting=bench.setting_name(speculation),
                tokens=tokens,
            )
        )

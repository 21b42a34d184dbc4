"""A bench as the engine runs it: progress while it measures, and each run as it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from eaglechat.engine.bench import measure as bench
from eaglechat.engine.bench.measure import measure_by_turns, name_of, settings_of
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.wire.bench_records import BenchPrompt, BenchRun
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
        others: Callable[[int], Sequence[LoadedPair]],
        cancelled: Callable[[], bool],
        send: Callable[[AnyEvent], None],
    ) -> None:
        """`others` loads so many more copies of the pair."""
        self._request = request
        self._pair = pair
        self._others = others
        self._cancelled = cancelled
        self._send = send
        # The tables must not name a shape that was not drafted.
        shapes = ("chain",) if pair.info.chains_only else request.shapes
        ngram = request.ngram if pair.info.draft else (True,)
        self._settings = settings_of(request.n, shapes, ngram)
        self._done = 0
        self._told = 0.0

    def run(self) -> None:
        """Raises EngineError."""
        request = self._request
        if reason := self._pair.info.no_bench(ngram=any(request.ngram)):
            raise BenchFailedError(f"there is nothing to compare: {reason}")
        for run in self._runs():
            self._done += 1
            self._send(BenchRunDone(id=request.id, run=run))
        self._send(BenchDone(id=request.id, cancelled=self._cancelled()))

    def _runs(self) -> Iterator[BenchRun]:
        request = self._request
        repeats = range(request.first_repeat, request.first_repeat + request.repeats)
        if not request.by_turns:
            return bench.measure(
                self._watched(self._pair),
                request.prompts,
                self._settings,
                repeats=repeats,
                max_tokens=request.max_tokens,
                cancelled=self._cancelled,
            )
        pairs = [self._pair, *self._others(len(self._settings) - 1)]
        return measure_by_turns(
            dict(zip(self._settings, map(self._watched, pairs), strict=True)),
            request.prompts,
            repeats=repeats,
            max_tokens=request.max_tokens,
            cancelled=self._cancelled,
        )

    def _watched(self, pair: LoadedPair) -> bench.Write:
        """Writes with a pair and sends progress a few times a second."""
        write = bench.writer(pair, self._cancelled)

        def watched(
            prompt: BenchPrompt, setting: Speculation | None, max_tokens: int
        ) -> Iterator[object]:
            tokens = 0
            for event in write(prompt, setting, max_tokens):
                if isinstance(event, Round):
                    tokens += len(event.tokens)
                if time.monotonic() - self._told >= _PROGRESS_EVERY_S:
                    self._told = time.monotonic()
                    self._tell(prompt, setting, tokens)
                yield event

        return watched

    def _tell(self, prompt: BenchPrompt, setting: Speculation | None, tokens: int) -> None:
        request = self._request
        self._send(
            BenchProgress(
                id=request.id,
                done=self._done,
                total=len(request.prompts) * request.repeats * len(self._settings),
                prompt=prompt.name,
                setting=name_of(setting),
                tokens=tokens,
            )
        )

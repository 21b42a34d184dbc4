"""A bench as the engine runs it: progress while it measures, and each run as it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from eaglechat.engine.bench.measure import (
    Write,
    measure,
    measure_by_turns,
    name_of,
    settings_of,
    writer,
)
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.wire.bench_records import BenchPrompt
from eaglechat.wire.cancelling import asked
from eaglechat.wire.errors import BenchFailedError, Cancelled
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
        send: Callable[[AnyEvent], None],
    ) -> None:
        """`others` loads so many more copies of the pair."""
        self._request = request
        self._pair = pair
        self._others = others
        self._send = send
        # The tables must not name a shape that was not drafted.
        shapes = ("chain",) if pair.info.chains_only else request.shapes
        ngram = request.ngram if pair.info.drafters else (True,)
        self._settings = settings_of(request.n, shapes, ngram, request.drafters)
        self._done = 0
        self._told = 0.0

    def run(self) -> None:
        """Raises EngineError."""
        request, pair = self._request, self._pair
        if reason := pair.info.no_bench(ngram=any(request.ngram)):
            raise BenchFailedError(f"there is nothing to compare: {reason}")
        repeats = range(request.first_repeat, request.first_repeat + request.repeats)
        prompts, max_tokens, cancelled = request.prompts, request.max_tokens, asked()
        if request.by_turns:
            pairs = [pair, *self._others(len(self._settings) - 1)]
            runs = measure_by_turns(
                dict(zip(self._settings, map(self._watched, pairs), strict=True)),
                prompts,
                repeats=repeats,
                max_tokens=max_tokens,
                cancelled=cancelled,
            )
        else:
            runs = measure(
                self._watched(pair),
                prompts,
                self._settings,
                repeats=repeats,
                max_tokens=max_tokens,
                cancelled=cancelled,
            )
        with suppress(Cancelled):
            for run in runs:
                self._done += 1
                self._send(BenchRunDone(id=request.id, run=run))
        self._send(BenchDone(id=request.id, cancelled=cancelled()))

    def _watched(self, pair: LoadedPair) -> Write:
        """Writes with a pair and sends progress a few times a second."""
        request, write = self._request, writer(pair)
        total = len(request.prompts) * request.repeats * len(self._settings)

        def watched(
            prompt: BenchPrompt, setting: Speculation | None, max_tokens: int
        ) -> Iterator[object]:
            tokens = 0
            for event in write(prompt, setting, max_tokens):
                if isinstance(event, Round):
                    tokens += len(event.tokens)
                if time.monotonic() - self._told >= _PROGRESS_EVERY_S:
                    self._told = time.monotonic()
                    self._send(
                        BenchProgress(
                            id=request.id,
                            done=self._done,
                            total=total,
                            prompt=prompt.name,
                            setting=name_of(setting),
                            tokens=tokens,
                        )
                    )
                yield event

        return watched

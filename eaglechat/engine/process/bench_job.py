"""A bench as the engine runs it: each run is sent as it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eaglechat.engine.bench.measure import measure, measure_by_turns, settings_of, writer
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.wire.errors import BenchFailedError
from eaglechat.wire.protocol import AnyEvent, Bench, BenchDone, BenchRunDone


def run_bench(
    request: Bench,
    pair: LoadedPair,
    others: Callable[[int], Sequence[LoadedPair]],
    say: Callable[[AnyEvent], None],
) -> None:
    """Answers a `bench` request on a loaded pair, of which `others` loads so many more copies: a
    BenchDone ends its events. Raises EngineError, Cancelled."""
    if reason := pair.info.no_bench(ngram=any(request.ngram)):
        raise BenchFailedError(f"there is nothing to compare: {reason}")
    # The tables must not name a shape that was not drafted.
    shapes = ("chain",) if pair.info.chains_only else request.shapes
    ngram = request.ngram if pair.info.drafters else (True,)
    settings = settings_of(request.n, shapes, ngram, request.drafters)
    repeats = range(request.first_repeat, request.first_repeat + request.repeats)
    prompts, max_tokens = request.prompts, request.max_tokens
    if request.by_turns:
        pairs = [pair, *others(len(settings) - 1)]
        writers = dict(zip(settings, map(writer, pairs), strict=True))
        runs = measure_by_turns(writers, prompts, repeats=repeats, max_tokens=max_tokens)
    else:
        runs = measure(writer(pair), prompts, settings, repeats=repeats, max_tokens=max_tokens)
    for run in runs:
        say(BenchRunDone(id=request.id, run=run))
    say(BenchDone(id=request.id, cancelled=False))

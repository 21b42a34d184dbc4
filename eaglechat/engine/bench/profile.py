"""Where a round's time goes: inside llama.cpp, by part, and in Python around it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from eaglechat.engine.llama.bindings import libllama
from eaglechat.wire.bench_records import RoundProfile
from eaglechat.wire.records import Round


class NativeClock:
    """Seconds spent in native calls, and their number, since it was made."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0


@contextmanager
def native_clock() -> Iterator[NativeClock]:
    """Time every call into llama.cpp while the body runs.

    The clock itself takes some tenths of a microsecond a call, which count as Python.
    """
    clock = NativeClock()
    functions: dict[str, Callable[..., Any]] = dict(vars(libllama))
    for name, function in functions.items():
        setattr(libllama, name, _timed(function, clock))
    try:
        yield clock
    finally:
        for name, function in functions.items():
            setattr(libllama, name, function)


def _timed(function: Callable[..., Any], clock: NativeClock) -> Callable[..., Any]:
    now = time.perf_counter

    def call(*arguments: Any) -> Any:
        started = now()
        try:
            return function(*arguments)
        finally:
            clock.seconds += now() - started
            clock.calls += 1

    return call


def profile(setting: str, events: Iterable[object], clock: NativeClock) -> RoundProfile:
    """Profile the rounds among a reply's events, which must be made under `clock`."""
    rounds: list[Round] = []
    native: list[float] = []
    calls: list[int] = []
    before_s, before_calls = clock.seconds, clock.calls
    for event in events:
        if isinstance(event, Round):
            rounds.append(event)
            native.append((clock.seconds - before_s) * 1000.0)
            calls.append(clock.calls - before_calls)
        before_s, before_calls = clock.seconds, clock.calls
    python = [
        max(0.0, round_.timings.total_ms - ms) for round_, ms in zip(rounds, native, strict=True)
    ]
    return RoundProfile(
        setting=setting,
        rounds=len(rounds),
        total_ms=_median([round_.timings.total_ms for round_ in rounds]),
        draft_ms=_median([round_.timings.draft_ms for round_ in rounds]),
        verify_ms=_median([round_.timings.verify_ms for round_ in rounds]),
        process_ms=_median([round_.timings.process_ms for round_ in rounds]),
        sample_ms=_median([round_.timings.sample_ms for round_ in rounds]),
        native_ms=_median(native),
        python_ms=_median(python),
        calls=_median([float(count) for count in calls]),
    )


def _median(values: Sequence[float | None]) -> float:
    """Of those that are reported; 0 where none is."""
    return median([value for value in values if value is not None] or [0.0])

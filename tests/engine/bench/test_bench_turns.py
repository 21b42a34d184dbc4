"""Settings measured by turns: who writes when, and whose time counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eaglechat.engine.bench import measure as bench
from eaglechat.engine.bench.measure import PLAINLY
from eaglechat.wire.bench_records import BenchPrompt
from eaglechat.wire.protocol import Speculation
from tests.engine.bench.test_bench import scripted_end, scripted_round

CHAT = BenchPrompt("chat", "Hello")
PLAIN_MS, DRAFTED_MS = 5.0, 9.0


class Clock:
    """Replies that take scripted times, on a clock of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seconds = 0.0
        self.written: list[tuple[str, int]] = []
        monkeypatch.setattr(bench.time, "perf_counter", lambda: self._seconds)

    def writer(self, name: str) -> bench.Write:
        def write(
            _prompt: BenchPrompt, setting: Speculation | None, max_tokens: int
        ) -> Iterator[object]:
            # Reading the prompt takes long, and counts for nothing.
            self._seconds += 100.0
            yield object()
            tokens = 0
            n_accepted = 0 if setting == PLAINLY else 2
            while tokens < max_tokens:
                self._seconds += (DRAFTED_MS if n_accepted else PLAIN_MS) / 1000.0
                tokens += 1 + n_accepted
                self.written.append((name, tokens))
                yield scripted_round(n_accepted, n_accepted, 1.0)
            # What the reply says of its time includes all the others'.
            yield scripted_end(tokens, 1e6)

        return write

    def measured(self, max_tokens: int, repeats: int = 1) -> dict[str, list[float]]:
        runs = bench.measure_by_turns(
            {
                PLAINLY: self.writer("plain"),
                Speculation(n_draft_max=2): self.writer("2"),
            },
            [CHAT],
            repeats=range(repeats),
            max_tokens=max_tokens,
        )
        times: dict[str, list[float]] = {"plain": [], "2": []}
        for run in runs:
            times[run.setting].append(run.generation_ms / run.tokens)
        return times


def test_each_setting_counts_its_own_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    times = Clock(monkeypatch).measured(max_tokens=30, repeats=2)
    assert times["plain"] == pytest.approx([PLAIN_MS] * 2)
    assert times["2"] == pytest.approx([DRAFTED_MS / 3] * 2)


def test_no_setting_runs_ahead_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    clock.measured(max_tokens=60)
    begun = len(clock.written) - 60 - 20
    at = {"plain": 0, "2": 0}
    for name, tokens in clock.written[begun:]:
        at[name] = tokens
        # A turn of eight tokens, and what a draft adds to the last of them.
        assert abs(at["plain"] - at["2"]) <= 8 + 2
    assert at == {"plain": 60, "2": 60}

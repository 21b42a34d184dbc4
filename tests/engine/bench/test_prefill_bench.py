from __future__ import annotations

from collections.abc import Iterator

import pytest

from eaglechat.engine.bench.measure import writer
from eaglechat.engine.bench.prefill import (
    DRAFTING,
    PrefillRun,
    measure_prefill,
    prefill_results,
)
from eaglechat.wire.bench_records import BenchPrompt, BenchRun
from eaglechat.wire.protocol import Speculation
from eaglechat.wire.records import SpeculationOff
from tests.engine.rig import Rig

LONG = BenchPrompt("long", "abc def " * 60)


def test_each_reading_starts_anew_and_the_draft_takes_in_all_of_it(rig: Rig) -> None:
    """On the tiny pair, through the loop: nothing of the prompt comes from the KV cache."""
    write = writer(rig, lambda: False)
    length = len(rig.prompt(LONG.text))
    for repeat in range(2):
        runs = list(measure_prefill(write, LONG, repeat, cancelled=lambda: False))
        assert [(run.setting, run.repeat) for run in runs] == [
            ("plain", repeat),
            (DRAFTING, repeat),
        ]
        # All but the last token, which the first round decodes, and a beginning that all share.
        assert all(length - 4 <= run.tokens <= length - 1 for run in runs)
        assert all(run.ms > 0 for run in runs)
    assert rig.drafter.known > length
    assert rig.drafter.waiting <= 3


def test_a_draft_that_gives_up_ends_the_measurement() -> None:
    def write(_prompt: BenchPrompt, _setting: Speculation | None, _most: int) -> Iterator[object]:
        yield SpeculationOff("the draft failed")

    with pytest.raises(RuntimeError, match="long, prefill: the draft failed"):
        list(measure_prefill(write, LONG, 0, cancelled=lambda: False))


def test_medians_stand_beside_those_of_the_reference() -> None:
    ours = [
        PrefillRun("long", setting, repeat, 100, ms)
        for setting, times in (("plain", (50, 40, 100)), (DRAFTING, (80, 100, 125)))
        for repeat, ms in enumerate(times)
    ]
    theirs = [
        BenchRun(
            "long", "reference 3", repeat, 4, 1.0, 0, 0, 0, None, {},
            prefill_tokens=101, prefill_ms=ms,
        )
        for repeat, ms in enumerate((101.0, 202.0, 50.5))
    ]  # fmt: skip
    (result,) = prefill_results(ours, theirs)
    assert (result.plain, result.drafting, result.reference) == (2000, 1000, 1000)
    (alone,) = prefill_results(ours, [])
    assert alone.reference is None

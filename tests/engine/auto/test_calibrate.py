"""What is timed when a pair is loaded, on the tiny pair."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from eaglechat.engine.auto import calibration
from eaglechat.engine.auto.calibration import NOT_CALIBRATED, calibrate
from eaglechat.engine.drafters.base import MOST_WAITING
from eaglechat.engine.drafters.eagle3.drafter import Eagle3Drafter
from eaglechat.engine.drafters.pairing import check_pair
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.wire.errors import LoadCancelledError, ProcessError
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT
from tests.engine.rig import Rig, check_bookkeeping


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, no time is up."""
    monkeypatch.setattr(calibration, "BUDGET_S", float("inf"))


@pytest.mark.usefixtures("unhurried")
def test_widths_a_draft_and_a_catch_up_are_timed(rig: Rig) -> None:
    seen = calibrate(rig.target, rig.drafter)
    widths = [width for width, _ in seen.verify]
    assert widths == sorted(set(widths))
    assert (widths[0], widths[-1]) == (1, N_DRAFT_MAX_LIMIT + 1)
    assert seen.draft is not None
    assert seen.catch_up_row is not None
    assert all(ms > 0.0 for ms in (*(ms for _, ms in seen.verify), seen.draft, seen.catch_up_row))


@pytest.mark.usefixtures("unhurried")
def test_a_catch_up_is_timed_at_the_size_it_will_have(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is timed more than once, because the first time touches new memory."""
    waiting = []
    take_in = rig.drafter.take_in

    def noted() -> None:
        waiting.append(rig.drafter.waiting)
        take_in()

    monkeypatch.setattr(rig.drafter, "take_in", noted)
    calibrate(rig.target, rig.drafter)
    assert len(waiting) > 1
    assert set(waiting) == {MOST_WAITING + 1}


def test_nothing_of_it_is_left_behind(rig: Rig) -> None:
    calibrate(rig.target, rig.drafter)
    assert rig.drafter.known == 0
    prompt = rig.prompt("the cat sat on the mat")
    check_bookkeeping(rig.reply(prompt), prompt)


def test_a_slow_machine_is_timed_as_far_as_there_is_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "BUDGET_S", 0.0)
    seen = calibrate(rig.target, rig.drafter)
    assert [width for width, _ in seen.verify] == [1, 2]
    assert seen.draft is not None
    assert seen.catch_up_row is None


def test_on_a_slow_machine_one_token_and_one_draft_decide(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock advances only in decodes, by half a second a row."""
    now, rows = [0.0], []

    def slow(context: Context, batch: Batch) -> int:
        if context is rig.target:
            rows.append(len(batch))
            now[0] += 0.5 * len(batch)
        return decode(context, batch)

    decode = Context.decode
    monkeypatch.setattr(Context, "decode", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    calibrate(rig.target, rig.drafter)
    assert rows == [1, 2]


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("n_measures", [0, 1, 5])
def test_a_cancelled_load_is_not_timed_any_further(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, n_measures: int
) -> None:
    n_decodes = 0

    def counted(context: Context, batch: Batch) -> int:
        nonlocal n_decodes
        n_decodes += context is rig.target
        return decode(context, batch)

    decode = Context.decode
    monkeypatch.setattr(Context, "decode", counted)
    with pytest.raises(LoadCancelledError):
        calibrate(rig.target, rig.drafter, lambda: n_decodes >= n_measures)
    assert n_decodes == n_measures
    assert rig.drafter.known == 0


def test_a_load_can_be_cancelled_while_it_is_timed(
    tiny_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The progress callback, which says whether to stop, is also called while calibrating."""
    logits, decode = Context.logits, Context.decode

    def progress(_stage: str, _fraction: float) -> bool:
        return not timing

    def timed(context: Context, row: int) -> object:
        nonlocal timing
        timing = True
        return logits(context, row)

    def counted(context: Context, batch: Batch) -> int:
        nonlocal n_more
        n_more += timing
        return decode(context, batch)

    timing, n_more = False, 0
    monkeypatch.setattr(Context, "logits", timed)
    monkeypatch.setattr(Context, "decode", counted)
    with pytest.raises(LoadCancelledError):
        LoadedPair(check_pair(*tiny_files), LoadOptions(n_ctx=256, n_threads=1), progress)
    assert n_more == 0


def test_a_pair_that_fails_is_not_calibrated(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ProcessError("no memory")

    monkeypatch.setattr(Eagle3Drafter, "propose", fail)
    assert calibrate(rig.target, rig.drafter) == NOT_CALIBRATED
    assert rig.drafter.known == 0

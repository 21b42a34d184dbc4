"""What is timed when a pair is loaded, on the tiny pair."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eaglechat.engine.auto.calibrate import calibrate
from eaglechat.engine.auto.calibration import NOT_CALIBRATED
from eaglechat.engine.drafters.base import MOST_CAUGHT_UP
from eaglechat.engine.drafters.eagle3.session import Eagle3Session
from eaglechat.engine.llama.objects import Model
from eaglechat.wire.errors import ProcessError
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT
from tests.engine.rig import Rig, check_bookkeeping, open_rig


@pytest.fixture
def fresh(tiny_models: tuple[Model, Model]) -> Iterator[Rig]:
    with open_rig(*tiny_models) as rig:
        yield rig


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, no time is up."""
    monkeypatch.setattr("eaglechat.engine.auto.calibrate._BUDGET_S", float("inf"))


@pytest.mark.usefixtures("unhurried")
def test_widths_a_draft_and_a_catch_up_are_timed(fresh: Rig) -> None:
    seen = calibrate(fresh.target, fresh.drafter)
    widths = [width for width, _ in seen.verify]
    assert widths == sorted(set(widths))
    assert (widths[0], widths[-1]) == (1, N_DRAFT_MAX_LIMIT + 1)
    assert seen.draft is not None
    assert seen.catch_up_row is not None
    assert all(ms > 0.0 for ms in (*(ms for _, ms in seen.verify), seen.draft, seen.catch_up_row))


@pytest.mark.usefixtures("unhurried")
def test_a_catch_up_is_timed_at_the_size_it_will_have(
    fresh: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than once: the first one finds memory that was never touched."""
    waiting = []
    take_in = fresh.session.take_in

    def noted(seq_id: int) -> None:
        waiting.append(fresh.session.waiting(seq_id))
        take_in(seq_id)

    monkeypatch.setattr(fresh.session, "take_in", noted)
    calibrate(fresh.target, fresh.drafter)
    assert len(waiting) > 1
    assert set(waiting) == {MOST_CAUGHT_UP + 1}


def test_nothing_of_it_is_left_behind(fresh: Rig) -> None:
    calibrate(fresh.target, fresh.drafter)
    assert fresh.session.known_length(0) == 0
    prompt = fresh.prompt("the cat sat on the mat")
    check_bookkeeping(fresh.reply(prompt), prompt)


def test_a_slow_machine_is_timed_as_far_as_there_is_time(
    fresh: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eaglechat.engine.auto.calibrate._BUDGET_S", 0.0)
    seen = calibrate(fresh.target, fresh.drafter)
    assert [width for width, _ in seen.verify] == [1, 2]
    assert seen.draft is not None
    assert seen.catch_up_row is None


def test_a_pair_that_fails_is_not_calibrated(fresh: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[int]:
        raise ProcessError("no memory")

    monkeypatch.setattr(Eagle3Session, "draft", fail)
    assert calibrate(fresh.target, fresh.drafter) == NOT_CALIBRATED
    assert fresh.session.known_length(0) == 0

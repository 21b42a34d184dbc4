"""What is timed when a pair is loaded, on the tiny pair."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eaglechat.engine.calibrate import NOT_CALIBRATED, Stopwatch, calibrate
from eaglechat.engine.errors import ProcessError
from eaglechat.engine.native import Model
from eaglechat.engine.records import N_DRAFT_MAX_LIMIT
from eaglechat.engine.session import Eagle3Session
from tests.engine.rig import Rig, check_bookkeeping, open_rig


@pytest.fixture
def fresh(tiny_models: tuple[Model, Model]) -> Iterator[Rig]:
    with open_rig(*tiny_models) as rig:
        yield rig


def test_widths_a_draft_and_a_catch_up_are_timed(fresh: Rig) -> None:
    seen = calibrate(fresh.target, fresh.session)
    widths = [width for width, _ in seen.verify]
    assert widths == sorted(set(widths))
    assert (widths[0], widths[-1]) == (1, N_DRAFT_MAX_LIMIT + 1)
    assert seen.draft is not None
    assert seen.catch_up_row is not None
    assert all(ms > 0.0 for ms in (*(ms for _, ms in seen.verify), seen.draft, seen.catch_up_row))


def test_nothing_of_it_is_left_behind(fresh: Rig) -> None:
    fresh.session.n_draft_max = 7
    calibrate(fresh.target, fresh.session)
    assert fresh.session.n_draft_max == 7
    assert fresh.session.known_length(0) == 0
    prompt = fresh.prompt("the cat sat on the mat")
    check_bookkeeping(fresh.reply(prompt), prompt)


def test_times_of_a_busy_moment_are_not_used(fresh: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = iter((10.0, 10.0, 16.0))
    monkeypatch.setattr(Stopwatch, "_plain", lambda _self: next(plain))
    assert calibrate(fresh.target, fresh.session) == NOT_CALIBRATED


def test_a_pair_that_fails_is_not_calibrated(fresh: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[int]:
        raise ProcessError("no memory")

    monkeypatch.setattr(Eagle3Session, "draft", fail)
    assert calibrate(fresh.target, fresh.session) == NOT_CALIBRATED
    assert fresh.session.known_length(0) == 0

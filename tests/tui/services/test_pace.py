"""The frame rate that adapts to what frames cost."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from eaglechat.tui.services import engine as service
from eaglechat.tui.services.engine import FramePace

TICK_S = 1 / 30


@pytest.fixture(autouse=True)
def share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "DRAWING_SHARE", 0.1)
    monkeypatch.setattr(service, "FEWEST_PER_SECOND", 8.0)


class Machine:
    """A clock, and a thread whose frames take some processor time."""

    def __init__(self, frame_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.spent = 0.0
        self.frames: list[float] = []
        self._frame_s = frame_s
        clock = SimpleNamespace(monotonic=lambda: self.now, thread_time=lambda: self.spent)
        monkeypatch.setattr(service, "time", clock)
        self._pace = FramePace()

    def run(self, seconds: float) -> None:
        while self.now < seconds:
            self.now += TICK_S
            if not self._pace.wait_s():
                self.frames.append(self.now)
                self.spent += self._frame_s


def test_cheap_frames_come_with_every_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(0.003, monkeypatch)
    machine.run(1.0)
    assert len(machine.frames) >= 30


@pytest.mark.parametrize("frame_s", [0.006, 0.010])
def test_dear_frames_come_less_often_and_stay_within_their_share(
    frame_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(frame_s, monkeypatch)
    machine.run(10.0)
    assert 8 * 10 <= len(machine.frames) < 20 * 10
    assert machine.spent / machine.now <= 0.1


def test_no_frame_waits_longer_than_the_slowest_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(0.5, monkeypatch)
    machine.run(2.0)
    gaps = [after - before for before, after in itertools.pairwise(machine.frames)]
    assert max(gaps) <= 0.125 + TICK_S

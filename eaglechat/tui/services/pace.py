"""Adapts the frame rate to what frames cost, as the models need the same CPU."""

from __future__ import annotations

import time
from collections.abc import Callable

DRAWING_SHARE = 0.04
"""The part of a core that may be spent on drawing what the engine writes."""
FEWEST_PER_SECOND = 4.0
MOST_PER_SECOND = 30.0


class FramePace:
    """Says when the next frame is due, so that drawing takes at most `DRAWING_SHARE` of a core, or
    FEWEST_PER_SECOND where that is more; there are at most MOST_PER_SECOND."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock, self._cpu_time = clock, cpu_time
        self._drawn, self._spent = clock(), cpu_time()

    def is_due(self) -> bool:
        """Whether enough time has passed for the last frame's cost. If so, a frame begins now."""
        return self.wait_s() == 0.0

    def wait_s(self) -> float:
        """Seconds until the next frame is due. If that is 0, it begins now."""
        now, spent = self._clock(), self._cpu_time()
        cost = (spent - self._spent) / DRAWING_SHARE
        due = self._drawn + max(1 / MOST_PER_SECOND, min(cost, 1 / FEWEST_PER_SECOND))
        if now < due:
            return due - now
        self._drawn, self._spent = now, spent
        return 0.0

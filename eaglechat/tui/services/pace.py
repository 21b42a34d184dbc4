"""Adapts the frame rate to what frames cost, as the models need the same CPU."""

from __future__ import annotations

import time
from collections.abc import Callable

DRAWING_SHARE = 0.04
"""The part of a core that may be spent on drawing what the engine writes."""
FEWEST_PER_SECOND = 4.0


class FramePace:
    """Says when the next frame is due, so that drawing takes at most `DRAWING_SHARE` of a core;
    there are at least FEWEST_PER_SECOND."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock, self._cpu_time = clock, cpu_time
        self._drawn, self._spent = clock(), cpu_time()

    def is_due(self) -> bool:
        """Whether enough time has passed for the last frame's cost. If so, a frame begins now."""
        now, spent = self._clock(), self._cpu_time()
        wait = min((spent - self._spent) / DRAWING_SHARE, 1 / FEWEST_PER_SECOND)
        if now - self._drawn < wait:
            return False
        self._drawn, self._spent = now, spent
        return True

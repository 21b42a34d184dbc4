"""Adapts the frame rate to what frames cost, as the models need the same CPU."""

from __future__ import annotations

import time
from collections.abc import Callable

DRAWING_SHARE = 0.04
"""The part of a core that may be spent on drawing what the engine writes."""


def drawing_pace(fewest_per_second: float) -> FramePace:
    """The pace of a part of the screen that is drawn while a reply is written."""
    return FramePace(DRAWING_SHARE, 1 / fewest_per_second)


class FramePace:
    """Says when the next frame is due, so that drawing takes at most `share` of a core; a frame
    never waits longer than `slowest_s` seconds."""

    def __init__(
        self,
        share: float,
        slowest_s: float,
        clock: Callable[[], float] = time.monotonic,
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share, self._slowest_s = share, slowest_s
        self._clock, self._cpu_time = clock, cpu_time
        self._drawn, self._spent = clock(), cpu_time()

    def is_due(self) -> bool:
        """Whether enough time has passed for the last frame's cost. If so, a frame begins now."""
        now, spent = self._clock(), self._cpu_time()
        wait = min((spent - self._spent) / self._share, self._slowest_s)
        if now - self._drawn < wait:
            return False
        self._drawn, self._spent = now, spent
        return True

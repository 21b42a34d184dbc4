"""Adapts the frame rate to what frames cost: the models share the processor with the screen."""

from __future__ import annotations

import time
from collections.abc import Callable

DRAWING_SHARE = 0.04
"""Of a core, for drawing what the engine writes."""


def drawing_pace(fewest_per_second: float) -> FramePace:
    """The pace of something that is drawn while a reply is written."""
    return FramePace(DRAWING_SHARE, 1 / fewest_per_second)


class FramePace:
    """Says when to draw what the engine wrote, so that drawing takes no more than a share of the
    calling thread's time; a frame never waits longer than `slowest_s` seconds."""

    def __init__(
        self,
        share: float,
        slowest_s: float,
        clock: Callable[[], float] = time.monotonic,
        processor_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share, self._slowest_s = share, slowest_s
        self._clock, self._processor_time = clock, processor_time
        self._drawn, self._spent = clock(), processor_time()

    def is_due(self) -> bool:
        """Whether the time since the last frame has paid for it; if so, a frame begins now."""
        now, spent = self._clock(), self._processor_time()
        wait = min((spent - self._spent) / self._share, self._slowest_s)
        if now - self._drawn < wait:
            return False
        self._drawn, self._spent = now, spent
        return True

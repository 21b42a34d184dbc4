"""The only way in which tests wait: until something holds, in wall-clock time."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

PATIENCE_S = 60.0
"""Longer than a busy machine needs for anything that comes at all."""
Found = TypeVar("Found")
What = str | Callable[[], str]


def until(
    holds: Callable[[], Found],
    what: What = "what was waited for",
    seconds: float = PATIENCE_S,
    meanwhile: Callable[[], object] = lambda: time.sleep(0.005),
) -> Found:
    """What `holds` returns once that is true. `what` is named if it never comes."""
    for _ in _times_to_ask(what, seconds):
        if found := holds():
            break
        meanwhile()
    return found


async def until_async(
    holds: Callable[[], Found],
    what: What,
    meanwhile: Callable[[], Awaitable[object]],
    seconds: float = PATIENCE_S,
) -> Found:
    """`until` for what an event loop does meanwhile."""
    for _ in _times_to_ask(what, seconds):
        if found := holds():
            break
        await meanwhile()
    return found


def _times_to_ask(what: What, seconds: float) -> Iterator[None]:
    """The last of them is after the end: a process that was stopped meanwhile may have it all."""
    deadline, is_late = time.monotonic() + seconds, False
    while not is_late:
        is_late = time.monotonic() > deadline
        yield
    raise AssertionError(
        f"never came in {seconds:g} s: {what if isinstance(what, str) else what()}"
    )

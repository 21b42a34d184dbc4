"""A cancel: one exception from one `check`, however deep the work for a request is.

A worker's thread answers one request after the other, so which request a `check` is about follows
from the thread that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from eaglechat.wire.errors import Cancelled

_asked: ContextVar[Callable[[], bool]] = ContextVar("_asked", default=lambda: False)


@contextmanager
def by(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """What this thread does inside is cancelled once `is_cancelled` says so. Not for use in a
    generator: its caller would be inside too."""
    token = _asked.set(is_cancelled)
    try:
        yield
    finally:
        _asked.reset(token)


def asked() -> Callable[[], bool]:
    """Says whether the request is cancelled, in any thread: for callbacks of native code, which an
    exception cannot pass."""
    return _asked.get()


def check() -> None:
    """Raises Cancelled."""
    if _asked.get()():
        raise Cancelled

"""A download that is stopped on its way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from eaglechat.hub.downloads.download import FileSnapshot, StoppedError, StopSignal
from tests.waiting import PATIENCE_S


def stop_at(bytes_done: int, pull: Callable[..., Path]) -> None:
    """Stop `pull` once at least so many bytes have come; it must end, as a stopped one does."""
    stop, arrived = StopSignal(), threading.Event()
    outcome: list[BaseException] = []

    def watch(progress: FileSnapshot) -> None:
        if progress.bytes_done >= bytes_done:
            arrived.set()

    def run() -> None:
        try:
            pull(stop=stop, on_progress=watch)
        except StoppedError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert arrived.wait(PATIENCE_S)
    stop.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert len(outcome) == 1

"""Event loops in threads: what nobody waits for any more ends by itself."""

from __future__ import annotations

import threading

import pytest

from eaglechat.links.http.client import DaemonExecutor


def test_a_lookup_that_nobody_waits_for_any_more_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[object] = []
    monkeypatch.setattr(threading, "excepthook", said.append)
    goes_on = threading.Event()
    lookups, others = DaemonExecutor(), set(threading.enumerate())
    lookups.submit(goes_on.wait).cancel()
    (thread,) = set(threading.enumerate()) - others
    goes_on.set()
    thread.join()
    assert said == []

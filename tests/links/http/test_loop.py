"""Event loops in threads: what nobody waits for any more ends by itself."""

from __future__ import annotations

import threading

import pytest

from eaglechat.links.http.loop import DaemonExecutor


def test_a_lookup_that_nobody_waits_for_any_more_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[object] = []
    monkeypatch.setattr(threading, "excepthook", said.append)
    goes_on = threading.Event()
    lookups = DaemonExecutor()
    lookups.submit(goes_on.wait, 10.0).cancel()
    (thread,) = (one for one in threading.enumerate() if one.name == "lookup")
    goes_on.set()
    thread.join(10.0)
    assert said == []

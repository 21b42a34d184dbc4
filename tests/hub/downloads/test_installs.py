"""Pairs on their way side by side: shared files, pauses, failures, the next start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eaglechat.hub.catalogue.entries import DraftSource, Entry, GGUFSource
from eaglechat.hub.downloads import install
from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.download import RetryPolicy
from eaglechat.hub.downloads.install import Plan
from eaglechat.hub.downloads.installs import Installs, InstallSnapshot, Stage
from eaglechat.hub.downloads.queue import Queue, QueueSnapshot
from eaglechat.hub.local import journal, library, removal
from eaglechat.hub.local.installed import status
from eaglechat.hub.local.pair import Pair
from tests import ggufs
from tests.hub.fakehub import FakeHub, Seen

TARGET = GGUFSource(repo="org/model", file="m-Q8_0.gguf")
ONE = Entry(name="one", target=TARGET, draft=DraftSource(repo="lab/one"))
TWO = Entry(name="two", target=TARGET, draft=DraftSource(repo="lab/two"))
PATIENCE_S = 20.0


@pytest.fixture
def installs(hub: Hub, fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installs:
    monkeypatch.setenv("EAGLECHAT_HOME", str(tmp_path / "eaglechat"))
    fake.add("org/model", {"m-Q8_0.gguf": ggufs.target() + bytes(200_000)})
    fake.add("lab/one", {"one.gguf": ggufs.draft()})
    fake.add("lab/two", {"two.gguf": ggufs.draft() + b"2"})
    return Installs(Queue(hub, policy=RetryPolicy(attempts=1)))


@pytest.fixture
def gate(fake: FakeHub) -> threading.Event:
    """Nothing of the target passes until it is set; the rest of a download does."""
    opened = threading.Event()

    def wait(seen: Seen, offset: int) -> None:
        while offset > 0 and not opened.is_set() and not fake.closing.is_set():
            opened.wait(0.05)

    fake.pace = wait
    return opened


def look(installs: Installs, name: str) -> InstallSnapshot | None:
    return next((one for one in installs.snapshots() if one.entry.name == name), None)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_at(installs: Installs, name: str, stage: Stage) -> bool:
    found = look(installs, name)
    return found is not None and found.stage is stage


def test_a_cancelled_pair_does_not_stop_another_that_needs_the_same_file(
    installs: Installs, hub: Hub, gate: threading.Event, fake: FakeHub
) -> None:
    for entry in (ONE, TWO):
        installs.start(install.plan(hub, entry))
    until(lambda: any(seen.sent for seen in fake.requests("storage")))
    installs.cancel("one")
    assert look(installs, "one") is None
    assert journal.begun() == ["two"]
    gate.set()
    until(lambda: is_at(installs, "two", Stage.INSTALLED))
    found = look(installs, "two")
    assert found is not None
    assert found.pair == status(TWO, hub.cache_dir).pair
    assert journal.begun() == []


def test_a_pair_that_shares_its_file_can_be_paused_and_gone_on_with(
    installs: Installs, hub: Hub, gate: threading.Event
) -> None:
    for entry in (ONE, TWO):
        installs.start(install.plan(hub, entry))
    installs.pause("one")
    assert is_at(installs, "one", Stage.PAUSED)
    assert is_at(installs, "two", Stage.DOWNLOADING)
    gate.set()
    until(lambda: is_at(installs, "two", Stage.INSTALLED))
    installs.resume("one")
    until(lambda: is_at(installs, "one", Stage.INSTALLED))


def test_a_failure_is_said_and_gone_on_from(installs: Installs, hub: Hub, fake: FakeHub) -> None:
    fake.fail(status=404)
    installs.start(install.plan(hub, ONE))
    until(lambda: is_at(installs, "one", Stage.FAILED))
    failed = look(installs, "one")
    assert failed is not None
    assert "is not where the Hub says it is" in (failed.error or "")
    installs.resume("one")
    until(lambda: is_at(installs, "one", Stage.INSTALLED))


def test_a_file_that_went_away_meanwhile_comes_again_on_trying_again(
    installs: Installs, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = install.finish

    def finish_without_target(plan: Plan, cache: Path, *rest: Any) -> Pair:
        monkeypatch.setattr(install, "finish", finish)
        removal.execute(removal.plan(library.find(library.scan(cache=cache), "org/model")))
        return finish(plan, cache, *rest)

    monkeypatch.setattr(install, "finish", finish_without_target)
    installs.start(install.plan(hub, ONE))
    until(lambda: is_at(installs, "one", Stage.FAILED))
    failed = look(installs, "one")
    assert failed is not None
    assert failed.error == "A file of one has gone since it was downloaded: try again."
    installs.resume("one")
    until(lambda: is_at(installs, "one", Stage.INSTALLED))


def test_what_was_on_its_way_at_the_end_is_known_at_the_next_start(
    installs: Installs, hub: Hub, gate: threading.Event, fake: FakeHub
) -> None:
    installs.start(install.plan(hub, ONE))
    until(lambda: any(seen.sent for seen in fake.requests("storage")))
    installs.close()
    assert journal.begun() == ["one"]
    gate.set()
    again = Installs(Queue(hub))
    again.start(install.plan(hub, ONE))
    until(lambda: is_at(again, "one", Stage.INSTALLED))
    assert journal.begun() == []


def test_a_pair_that_starts_while_the_others_are_listed_does_not_disturb_the_list(
    installs: Installs, hub: Hub, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    installs.start(install.plan(hub, ONE))
    late = install.plan(hub, TWO)
    snapshot = Queue.snapshot

    def snapshot_then_start(queue: Queue) -> QueueSnapshot:
        monkeypatch.setattr(Queue, "snapshot", snapshot)
        files = snapshot(queue)
        installs.start(late)
        return files

    monkeypatch.setattr(Queue, "snapshot", snapshot_then_start)
    assert [one.entry.name for one in installs.snapshots()] == ["one"]
    assert [one.entry.name for one in installs.snapshots()] == ["one", "two"]
    gate.set()
    until(lambda: is_at(installs, "two", Stage.INSTALLED))

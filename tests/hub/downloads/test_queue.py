"""Downloads in turn: what a user may do with each, files that pairs share, the next start."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.downloads import install
from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.download import RetryPolicy
from eaglechat.hub.downloads.install import Plan
from eaglechat.hub.downloads.queue import Downloads, Install, SpeedMeter, Stage
from eaglechat.hub.local import library, removal
from eaglechat.hub.local.installed import status
from eaglechat.hub.local.pairs import Pair
from eaglechat.hub.references import ModelSource
from tests import ggufs
from tests.hub.fakehub import FakeHub, Seen
from tests.waiting import PATIENCE_S, until

SIZE, HALF = 100_000, 50_000
FILES = {f"m{i}.gguf": random.Random(i).randbytes(SIZE) for i in range(4)}
TARGET = ModelSource(repo="org/model", file="m-Q8_0.gguf")
ONE = CatalogueEntry(name="one", target=TARGET, draft=ModelSource(repo="lab/one"))
TWO = CatalogueEntry(name="two", target=TARGET, draft=ModelSource(repo="lab/two"))


class Gate:
    """Holds every transfer at byte HALF until opened."""

    def __init__(self, fake: FakeHub) -> None:
        self.opened = threading.Event()
        self.waiting: set[str] = set()
        self._closing = fake.closing
        fake.piece = HALF
        fake.pace = self.pace

    def pace(self, seen: Seen, offset: int) -> None:
        if offset >= HALF:
            self.waiting.add(seen.path)
            while not self.opened.is_set() and not self._closing.is_set():
                self.opened.wait(0.05)


@pytest.fixture
def gate(fake: FakeHub) -> Gate:
    return Gate(fake)


@pytest.fixture
def downloads(hub: Hub, fake: FakeHub) -> Downloads:
    fake.add("user/model", FILES)
    fake.add("org/model", {"m-Q8_0.gguf": ggufs.target() + bytes(200_000)})
    fake.add("lab/one", {"one.gguf": ggufs.draft()})
    fake.add("lab/two", {"two.gguf": ggufs.draft() + b"2"})
    return Downloads(hub, policy=RetryPolicy(attempts=2, first_wait=0.01))


def fetch(downloads: Downloads, *numbers: int) -> None:
    """Download each of these files of user/model under its own name, m0 to m3."""
    listing = downloads.hub.repo("user/model")
    for number in numbers:
        downloads.fetch(f"m{number}", [listing.file(f"m{number}.gguf")])


def look(downloads: Downloads, name: str) -> Install:
    (found,) = [one for one in downloads.snapshots() if one.name == name]
    return found


def states(downloads: Downloads) -> dict[str, str]:
    """The state of the only file of each download; "running" whatever its thread is doing."""
    found = {one.name: one.files[0].state for one in downloads.snapshots()}
    at_rest = ("queued", "paused", "done", "failed")
    return {name: state if state in at_rest else "running" for name, state in found.items()}


def until_half(downloads: Downloads, *names: str) -> None:
    until(lambda: all(look(downloads, name).bytes_done == HALF for name in names))


def until_stage(downloads: Downloads, name: str, stage: Stage) -> Install:
    until(lambda: look(downloads, name).stage is stage)
    return look(downloads, name)


def content(downloads: Downloads, name: str) -> bytes:
    (file,) = look(downloads, name).files
    assert file.path is not None
    return file.path.read_bytes()


def test_one_after_the_other_until_all_are_there(downloads: Downloads, gate: Gate) -> None:
    fetch(downloads, 0, 1, 2, 3)
    until_half(downloads, "m0")
    assert list(states(downloads).values()) == ["running", "queued", "queued", "queued"]
    assert len(gate.waiting) == 1
    gate.opened.set()
    assert downloads.wait(timeout=PATIENCE_S)
    assert [content(downloads, f"m{i}") for i in range(4)] == list(FILES.values())
    assert {one.stage for one in downloads.snapshots()} == {"installed"}
    assert {(one.bytes_done, one.bytes_total) for one in downloads.snapshots()} == {(SIZE, SIZE)}


def test_a_paused_download_frees_its_place_and_goes_on_from_its_byte(
    downloads: Downloads, gate: Gate, fake: FakeHub
) -> None:
    fetch(downloads, 0, 1, 2)
    until_half(downloads, "m0")
    downloads.pause("m0")
    until(lambda: states(downloads) == {"m0": "paused", "m1": "running", "m2": "queued"})
    held = look(downloads, "m0")
    assert (held.bytes_done, held.bytes_total, held.speed) == (HALF, SIZE, None)
    gate.opened.set()
    assert downloads.wait(timeout=PATIENCE_S)
    assert look(downloads, "m0").stage == "paused"
    downloads.resume("m0")
    assert downloads.wait(timeout=PATIENCE_S)
    assert content(downloads, "m0") == FILES["m0.gguf"]
    assert fake.requests("storage")[-1].range == f"bytes={HALF}-"


def test_resuming_at_once_waits_for_the_old_thread_and_loses_nothing(
    downloads: Downloads, gate: Gate, fake: FakeHub
) -> None:
    fetch(downloads, 0)
    until_half(downloads, "m0")
    downloads.pause("m0")
    downloads.resume("m0")
    gate.opened.set()
    assert downloads.wait(timeout=PATIENCE_S)
    assert states(downloads) == {"m0": "done"}
    assert [seen.range for seen in fake.requests("storage")] == [None, f"bytes={HALF}-"]


def test_cancel_takes_effect_at_once_and_starts_the_next(downloads: Downloads, gate: Gate) -> None:
    fetch(downloads, 0, 1, 2)
    until_half(downloads, "m0")
    downloads.cancel("m0")
    until(lambda: states(downloads) == {"m1": "running", "m2": "queued"})
    gate.opened.set()
    assert downloads.wait(timeout=PATIENCE_S)
    assert states(downloads) == {"m1": "done", "m2": "done"}


def test_a_failure_is_told_in_its_words_and_can_be_tried_again(
    downloads: Downloads, fake: FakeHub
) -> None:
    fake.repos["user/model"].gated = True
    fetch(downloads, 0)
    assert downloads.wait(timeout=PATIENCE_S)
    failed = look(downloads, "m0")
    assert failed.stage == "failed"
    assert "user/model is gated" in (failed.error or "")
    fake.repos["user/model"].gated = False
    downloads.resume("m0")
    assert downloads.wait(timeout=PATIENCE_S)
    assert (states(downloads), look(downloads, "m0").error) == ({"m0": "done"}, None)


def test_speed_is_of_the_last_seconds() -> None:
    meter = SpeedMeter()
    assert meter.speed(0.0, 0) is None
    for second in range(1, 20):
        speed = meter.speed(second, 1000 * second if second < 10 else 100 * second + 9000)
    assert speed == pytest.approx(100.0)
    assert meter.speed(24.0, 10_900) == pytest.approx(0.0)
    assert meter.speed(25.0, 0) is None
    assert meter.speed(26.0, 70) == pytest.approx(70.0)


def test_time_left_follows_from_the_speed(hub: Hub, fake: FakeHub) -> None:
    fake.add("user/model", FILES)
    now, opened = [0.0], threading.Event()
    downloads = Downloads(hub, clock=lambda: now[0])
    fake.piece = 25_000

    def one_piece_a_second(seen: Seen, offset: int) -> None:
        until(lambda: look(downloads, "m0").bytes_done == offset)
        now[0] = offset / 25_000
        if offset == HALF:
            opened.wait(PATIENCE_S)

    fake.pace = one_piece_a_second
    fetch(downloads, 0)
    until(lambda: now[0] == 2.0)
    held = look(downloads, "m0")
    assert held.speed is not None
    assert 12_500 <= held.speed <= 25_000
    assert held.eta == held.files[0].eta == pytest.approx(HALF / held.speed)
    opened.set()
    assert downloads.wait(timeout=PATIENCE_S)
    assert look(downloads, "m0").files[0].eta is None


@pytest.mark.parametrize(("server", "method"), [("hub", "HEAD"), ("storage", "GET")])
def test_a_paused_download_resumes_while_its_last_request_still_hangs(
    downloads: Downloads, fake: FakeHub, server: str, method: str
) -> None:
    fake.fail(hang=True, server=server, method=method)
    fetch(downloads, 0)
    until(lambda: fake.requests(server, method))
    downloads.pause("m0")
    downloads.resume("m0")
    until(lambda: states(downloads) == {"m0": "done"})


def test_a_cancelled_pair_does_not_stop_another_that_needs_the_same_file(
    downloads: Downloads, hub: Hub, gate: Gate, fake: FakeHub
) -> None:
    for entry in (ONE, TWO):
        downloads.install(install.plan(hub, entry))
    until_half(downloads, "one")
    downloads.cancel("one")
    assert [one.name for one in downloads.snapshots()] == ["two"]
    gate.opened.set()
    found = until_stage(downloads, "two", "installed")
    assert found.pair == status(TWO, hub.cache_dir).pair
    (target,) = install.plan(hub, TWO).target
    fetched = [seen.range for seen in fake.requests("storage") if target.sha256 in seen.path]
    assert fetched[-2:] == [None, f"bytes={HALF}-"]


def test_a_pair_that_failed_is_resumed_by_installing_it_again(
    downloads: Downloads, hub: Hub, fake: FakeHub
) -> None:
    fake.fail(status=404)
    plan = install.plan(hub, ONE)
    downloads.install(plan)
    failed = until_stage(downloads, "one", "failed")
    assert "is not where the Hub says it is" in (failed.error or "")
    downloads.install(plan)
    until_stage(downloads, "one", "installed")


def test_a_conversion_is_paused_and_goes_on(
    downloads: Downloads, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = install.finish

    def without_end(plan: Plan, cache: Path, on_progress: Callable[[int, int], None]) -> None:
        while True:
            on_progress(1, 2)

    monkeypatch.setattr(install, "finish", without_end)
    downloads.install(install.plan(hub, ONE))
    until(lambda: look(downloads, "one").bytes_total == 2)
    shown = look(downloads, "one")
    assert (shown.stage, shown.bytes_done, shown.bytes_total) == ("converting", 1, 2)
    downloads.pause("one")
    assert look(downloads, "one").stage == "paused"
    monkeypatch.setattr(install, "finish", finish)
    downloads.resume("one")
    until_stage(downloads, "one", "installed")


def test_a_file_that_was_deleted_meanwhile_is_downloaded_again_on_resume(
    downloads: Downloads, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = install.finish

    def finish_without_target(plan: Plan, cache: Path, **rest: Any) -> object:
        monkeypatch.setattr(install, "finish", finish)
        found = library.find(library.scan(cache=cache), "org/model")
        removal.remove(removal.plan_removal(found))
        return finish(plan, cache, **rest)

    monkeypatch.setattr(install, "finish", finish_without_target)
    downloads.install(install.plan(hub, ONE))
    failed = until_stage(downloads, "one", "failed")
    assert failed.error == "A file of one has gone since it was downloaded: try again."
    downloads.resume("one")
    until_stage(downloads, "one", "installed")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_of_the_program_ends_an_installation_too(
    downloads: Downloads, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Pair:
        raise RuntimeError

    monkeypatch.setattr(install, "finish", fail)
    downloads.install(install.plan(hub, ONE))
    failed = until_stage(downloads, "one", "failed")
    assert "eaglechat has a fault there" in (failed.error or "")

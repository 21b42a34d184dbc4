"""Several downloads at a time, and what a user may do with each."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.download import FileRequest, RetryPolicy
from eaglechat.hub.downloads.queue import FileSnapshot, Queue, SpeedMeter, State
from tests.hub.fakehub import FakeHub, Seen

SIZE = 100_000
FILES = {f"m{i}.gguf": random.Random(i).randbytes(SIZE) for i in range(4)}
REQUESTS = [FileRequest("user/model", path) for path in FILES]


class Gate:
    """Holds every transfer at byte 50,000 until opened."""

    def __init__(self, fake: FakeHub) -> None:
        self.opened = threading.Event()
        self.waiting: set[str] = set()
        fake.piece = 50_000
        fake.pace = self.pace

    def pace(self, seen: Seen, offset: int) -> None:
        if offset >= 50_000 and not self.opened.is_set():
            self.waiting.add(seen.path)
            self.opened.wait(20)


@pytest.fixture
def gate(fake: FakeHub) -> Gate:
    fake.add("user/model", FILES)
    return Gate(fake)


@pytest.fixture
def queue(hub: Hub) -> Queue:
    hub.timeouts = type(hub.timeouts)(read=20.0)
    return Queue(hub, policy=RetryPolicy(attempts=2, first_wait=0.01))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


def states(queue: Queue) -> list[str]:
    return [file.state.value for file in queue.snapshot().files]


def half(queue: Queue, job: int) -> Callable[[], bool]:
    return lambda: queue.snapshot().files[job].bytes_done == 50_000


def file_of(queue: Queue, job: int) -> FileSnapshot:
    return queue.snapshot().files[job]


def test_two_at_a_time_until_all_are_there(queue: Queue, gate: Gate) -> None:
    for request in REQUESTS:
        queue.add(request, SIZE)
    until(lambda: len(gate.waiting) == 2)
    assert states(queue) == ["running", "running", "queued", "queued"]
    until(lambda: half(queue, 0)() and half(queue, 1)())
    snapshot = queue.snapshot()
    assert (snapshot.bytes_done, snapshot.bytes_total) == (100_000, 400_000)
    gate.opened.set()
    assert queue.wait(timeout=20)
    snapshot = queue.snapshot()
    assert [file.path.read_bytes() for file in snapshot.files if file.path] == list(FILES.values())
    assert snapshot.bytes_done == snapshot.bytes_total == 400_000


def test_a_paused_download_frees_its_place_and_goes_on_from_its_byte(
    queue: Queue, gate: Gate, fake: FakeHub
) -> None:
    for request in REQUESTS[:3]:
        queue.add(request)
    until(lambda: half(queue, 0)() and half(queue, 1)())
    queue.pause(0)
    assert states(queue) == ["paused", "running", "running"]
    gate.opened.set()
    assert queue.wait([1, 2], timeout=20)
    assert file_of(queue, 0).state is State.PAUSED
    queue.resume(0)
    assert queue.wait([0], timeout=20)
    path = file_of(queue, 0).path
    assert path is not None
    assert path.read_bytes() == FILES["m0.gguf"]
    assert fake.requests("storage")[-1].range == "bytes=50000-"


def test_resuming_at_once_waits_for_the_old_thread_and_loses_nothing(
    queue: Queue, gate: Gate, fake: FakeHub
) -> None:
    job = queue.add(REQUESTS[0])
    until(half(queue, job))
    queue.pause(job)
    queue.resume(job)
    gate.opened.set()
    assert queue.wait([job], timeout=20)
    assert file_of(queue, job).state is State.DONE
    assert [seen.range for seen in fake.requests("storage")] == [None, "bytes=50000-"]


def test_cancel_takes_effect_at_once_and_starts_the_next(queue: Queue, gate: Gate) -> None:
    for request in REQUESTS[:3]:
        queue.add(request, SIZE)
    until(half(queue, 0))
    queue.cancel(0)
    assert states(queue) == ["cancelled", "running", "running"]
    assert queue.snapshot().bytes_total == 200_000
    gate.opened.set()
    assert queue.wait(timeout=20)
    assert states(queue) == ["cancelled", "done", "done"]


def test_a_failure_is_told_in_its_words_and_can_be_tried_again(
    queue: Queue, gate: Gate, fake: FakeHub
) -> None:
    gate.opened.set()
    fake.repos["user/model"].gated = True
    job = queue.add(REQUESTS[0])
    assert queue.wait(timeout=20)
    failed = file_of(queue, job)
    assert failed.state is State.FAILED
    assert "user/model is gated" in (failed.error or "")
    fake.repos["user/model"].gated = False
    queue.resume(job)
    assert queue.wait(timeout=20)
    assert file_of(queue, job).state is State.DONE
    assert file_of(queue, job).error is None


def test_a_file_that_is_queued_is_not_queued_twice(queue: Queue, gate: Gate) -> None:
    assert queue.add(REQUESTS[0]) == queue.add(REQUESTS[0])
    gate.opened.set()
    assert queue.wait(timeout=20)
    assert len(queue.snapshot().files) == 1


def test_running_downloads_reserve_the_disk_they_will_fill(
    queue: Queue, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eaglechat.hub.downloads.download.free_bytes", lambda folder: 120_000)
    queue.add(REQUESTS[0])
    until(half(queue, 0))
    queue.add(REQUESTS[1])
    assert queue.wait([1], timeout=20)
    # 100,000 bytes to come and 50,000 promised to the first, of 120,000 free
    assert "30 kB more are needed" in (file_of(queue, 1).error or "")


def test_speed_is_of_the_last_seconds() -> None:
    meter = SpeedMeter()
    assert meter.speed(0.0) is None
    for second in range(20):
        meter.add(float(second), 1000 * second if second < 10 else 100 * second + 9000)
    assert meter.speed(19.0) == pytest.approx(100.0)
    assert meter.speed(24.0) is None
    meter.add(25.0, 0)
    meter.add(26.0, 70)
    assert meter.speed(26.0) == pytest.approx(70.0)


def test_time_left_follows_from_the_speed(hub: Hub, fake: FakeHub) -> None:
    fake.add("user/model", FILES)
    now, opened = [0.0], threading.Event()
    queue = Queue(hub, clock=lambda: now[0])
    fake.piece = 25_000

    def one_piece_a_second(seen: Seen, offset: int) -> None:
        until(lambda: file_of(queue, 0).bytes_done == offset)
        now[0] = offset / 25_000
        if offset == 50_000:
            opened.wait(20)

    fake.pace = one_piece_a_second
    job = queue.add(REQUESTS[0])
    until(lambda: now[0] == 2.0)
    held = file_of(queue, job)
    assert held.speed is not None
    assert 12_500 <= held.speed <= 25_000
    assert held.eta == pytest.approx(50_000 / held.speed)
    assert queue.snapshot().eta == held.eta
    opened.set()
    assert queue.wait(timeout=20)
    assert file_of(queue, job).eta is None


@pytest.mark.parametrize(("server", "method"), [("hub", "HEAD"), ("storage", "GET")])
def test_a_paused_job_resumes_while_its_last_request_still_hangs(
    queue: Queue, fake: FakeHub, server: str, method: str
) -> None:
    fake.add("user/model", FILES)
    fake.fail(hang=True, server=server, method=method)
    job = queue.add(REQUESTS[0], SIZE)
    until(lambda: bool(fake.requests(server, method)))
    queue.pause(job)
    queue.resume(job)
    until(lambda: states(queue) == ["done"])
    assert file_of(queue, job).path is not None

"""A process that downloads is killed again and again, and the download loses nothing.

EAGLECHAT_KILLS sets how often (12 by default); EAGLECHAT_KILLS_REPORT=1 prints the figures.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eaglechat.hub.local.cache import RepoCache
from eaglechat.hub.local.library import ModelKind, scan
from eaglechat.hub.local.partial_file import BLOCK, PartialFile, bytes_received
from tests.hub.commands import Commands
from tests.hub.fakehub import FakeHub, Seen, sha256
from tests.waiting import until

KILLS = int(os.environ.get("EAGLECHAT_KILLS", "12"))
CHUNK = 64 << 10
"""What the client reads from its connection at once."""
SIZE = min(max(4 << 20, KILLS * 5 * CHUNK), BLOCK)
"""A longer file would come over several connections."""


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    with FakeHub() as server:
        server.piece = 8 << 10
        yield server


@pytest.mark.slow
def test_every_kill_is_resumed_at_the_byte_it_came_to(fake: FakeHub, tmp_path: Path) -> None:
    rng = random.Random(20)
    data = rng.randbytes(SIZE)
    fake.add("user/model", {"m.gguf": data})
    commands = Commands(tmp_path, fake.endpoint)
    part = RepoCache(commands.cache, "user/model").partial(sha256(data))

    def on_disk() -> int:
        return part.stat().st_size if part.exists() else 0

    def stay_within_a_chunk_of_what_came(seen: Seen, offset: int) -> None:
        # The network's buffers must not count as fetched: only what the client could have read.
        while offset - bytes_received(part, SIZE) > CHUNK and not fake.closing.is_set():
            time.sleep(0.0005)

    fake.pace = stay_within_a_chunk_of_what_came
    for number, kill_at in enumerate(sorted(rng.randrange(SIZE) for _ in range(KILLS))):
        # A kill between the two writes leaves bytes on the disk that are not counted.
        begins = bytes_received(part, SIZE)
        assert on_disk() - CHUNK <= begins <= on_disk()
        fake.fail(stall_after=max(kill_at - begins, 0))
        process = commands.start("pull", "user/model")
        seen = wait_for_request(fake, number, kill_at - begins)
        process.kill()
        process.wait()
        process.communicate()
        assert seen.range == (f"bytes={begins}-" if begins else None)
        assert part.read_bytes() == data[: on_disk()]
        assert all(model.kind is ModelKind.UNFINISHED for model in scan([], commands.cache))
        fake.faults.clear()

    result = commands.run("pull", "user/model")
    assert result.returncode == 0, result.stderr
    assert sha256(Path(result.stdout.strip()).read_bytes()) == sha256(data)

    again = refetched(fake)
    assert max(again) <= CHUNK + fake.piece
    if os.environ.get("EAGLECHAT_KILLS_REPORT"):
        print(
            f"\n{KILLS} kills of a download of {SIZE:,} bytes; sent twice in all {sum(again):,}, "
            f"at most {max(again):,} after one kill, {again.count(0)} times nothing"
        )


class Held:
    """A pace: stops everything once so many bytes were sent in all, until the gate opens."""

    def __init__(self, fake: FakeHub, sent: int) -> None:
        self.fake, self.sent = fake, sent
        self.reached, self.gate = threading.Event(), threading.Event()

    def __call__(self, seen: Seen, offset: int) -> None:
        if sum(one.sent for one in self.fake.requests("storage")) > self.sent:
            self.reached.set()
            self.gate.wait()


@pytest.mark.slow
def test_kills_lose_nothing_of_any_connection(fake: FakeHub, tmp_path: Path) -> None:
    rng = random.Random(21)
    data = rng.randbytes(5 * BLOCK // 2)
    fake.add("user/model", {"m.gguf": data})
    fake.piece = 256 << 10
    commands = Commands(tmp_path, fake.endpoint)
    part = RepoCache(commands.cache, "user/model").partial(sha256(data))
    before = 0
    for share in (0.1, 0.4, 0.8):
        held = fake.pace = Held(fake, int(share * len(data)))
        process = commands.start("pull", "user/model")
        assert held.reached.wait(60)
        process.kill()
        process.communicate()
        held.gate.set()
        content = part.read_bytes()
        with PartialFile(part, len(data)) as left:
            assert left.received >= before
            before = left.received
            for start, end in left.missing_ranges():
                begin = start // BLOCK * BLOCK
                assert content[begin:start] == data[begin:start]
                assert end > start

    fake.pace = lambda seen, offset: None
    result = commands.run("pull", "user/model")
    assert result.returncode == 0, result.stderr
    assert sha256(Path(result.stdout.strip()).read_bytes()) == sha256(data)
    assert before > 0


def wait_for_request(fake: FakeHub, number: int, sent: int) -> Seen:
    """A request for bytes by its number, once the server has sent so many of them."""

    def there() -> Seen | None:
        requests = fake.requests("storage")
        is_there = len(requests) > number and requests[number].sent >= max(sent, 0)
        return requests[number] if is_there else None

    found = until(there, f"{sent} bytes of request {number}")
    assert found is not None
    return found


def refetched(fake: FakeHub) -> list[int]:
    """For each request after the first: bytes sent before that it asked for again."""
    requests = fake.requests("storage")
    starts = [int(r.range[6:-1]) if r.range else 0 for r in requests]
    ends = [start + seen.sent for start, seen in zip(starts, requests, strict=True)]
    return [max(end - start, 0) for end, start in zip(ends[:-1], starts[1:], strict=True)]

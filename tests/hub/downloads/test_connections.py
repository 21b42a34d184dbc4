"""One file over several connections, each of which can fail in its own way."""

from __future__ import annotations

import random
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from eaglechat.hub.downloads import transfer
from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.download import (
    FileProgress,
    FileState,
    RetryPolicy,
    download,
)
from eaglechat.hub.errors import HubError
from eaglechat.hub.local import partial_file
from eaglechat.hub.local.cache import RepoCache
from tests.hub.downloads.stopping import stop_at
from tests.hub.fakehub import FakeHub, Seen, sha256
from tests.waiting import PATIENCE_S

BLOCK = 20_000
DATA = random.Random(3).randbytes(10 * BLOCK + 77)
REPO, FILE = "user/model", "model.gguf"
LAST = 10 * BLOCK
THIRD = f"bytes={2 * BLOCK}-{3 * BLOCK - 1}"


@pytest.fixture(autouse=True)
def model(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_file, "BLOCK", BLOCK)
    fake.add(REPO, {FILE: DATA})
    fake.piece = 4 << 10


def pull(hub: Hub, attempts: int = 4, **options: object) -> Path:
    policy = RetryPolicy(attempts=attempts, first_wait=0.01, longest_wait=0.02)
    return download(hub, hub.repo(REPO).file(FILE), policy=policy, **options)  # type: ignore[arg-type]


def part_of(hub: Hub) -> Path:
    return RepoCache(hub.cache_dir, REPO).partial(sha256(DATA))


def asked(fake: FakeHub) -> Counter[str | None]:
    return Counter(seen.range for seen in fake.requests("storage"))


def test_each_block_is_asked_for_once_over_at_most_eight_connections(
    hub: Hub, fake: FakeHub
) -> None:
    open_now: set[int] = set()
    most = 0
    together = threading.Barrier(transfer.CONNECTIONS)

    def pace(seen: Seen, offset: int) -> None:
        nonlocal most
        if id(seen) not in open_now:
            open_now.add(id(seen))
            most = max(most, len(open_now))
            if len(fake.requests("storage")) <= transfer.CONNECTIONS:
                together.wait(PATIENCE_S)
        if seen.sent + fake.piece >= BLOCK:
            open_now.discard(id(seen))

    fake.pace = pace
    assert pull(hub).read_bytes() == DATA
    assert most == transfer.CONNECTIONS
    blocks = [f"bytes={at}-{at + BLOCK - 1}" for at in range(0, LAST, BLOCK)]
    assert asked(fake) == Counter([*blocks, f"bytes={LAST}-"])
    assert len(fake.requests("hub", "HEAD")) == 1


def test_a_block_that_was_cut_is_finished_by_another_connection(hub: Hub, fake: FakeHub) -> None:
    fake.fail(at=2 * BLOCK, close_after=5000)
    notes: list[FileProgress] = []
    assert pull(hub, on_progress=notes.append).read_bytes() == DATA
    assert asked(fake)[f"bytes={2 * BLOCK + 5000}-{3 * BLOCK - 1}"] == 1
    # The others went on: the file was not asked about again.
    assert FileState.RETRYING not in {note.state for note in notes}


def test_connections_that_break_again_and_again_stay_as_many(hub: Hub, fake: FakeHub) -> None:
    fake.fail(close_after=12_000, times=15)
    notes: list[FileProgress] = []
    assert pull(hub, on_progress=notes.append).read_bytes() == DATA
    assert FileState.RETRYING not in {note.state for note in notes}
    assert len(fake.requests("hub", "HEAD")) == 1


def test_a_stall_holds_up_its_own_block_only(impatient: Hub, fake: FakeHub) -> None:
    fake.fail(at=0, stall_after=7000)
    assert pull(impatient).read_bytes() == DATA
    assert asked(fake)[f"bytes=7000-{BLOCK - 1}"]


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 416},
        {"status": 500},
        {"status": 429},
        {"shift_range": 7},
        {"content_range": "bytes 0-19999/*"},
        {"content_range": f"bytes {2 * BLOCK}-{3 * BLOCK - 1}/5"},
        {"content_range": "nonsense"},
        {"etag": '"another"', "flip_byte": 2 * BLOCK},
        {"extra": b"more than was asked for"},
    ],
    ids=str,
)
def test_a_wrong_answer_to_one_block_costs_that_answer(
    hub: Hub, fake: FakeHub, fault: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first answer that comes settles the file's tag: the fault is the third block's alone.
    first = threading.Event()
    write = partial_file.PartialFile.write

    def noted(self: partial_file.PartialFile, start: int, data: bytes) -> None:
        first.set()
        write(self, start, data)

    monkeypatch.setattr(partial_file.PartialFile, "write", noted)
    fake.fail(at=2 * BLOCK, after=first, **fault)
    assert pull(hub).read_bytes() == DATA
    fetched = sum(seen.sent for seen in fake.requests("storage"))
    assert fetched <= len(DATA) + 2 * BLOCK


def test_a_server_without_ranges_sends_the_file_over_one_connection(
    hub: Hub, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: set[int] = set()
    write = partial_file.PartialFile.write

    def noted(self: partial_file.PartialFile, start: int, data: bytes) -> None:
        writers.add(threading.get_ident())
        write(self, start, data)

    monkeypatch.setattr(partial_file.PartialFile, "write", noted)
    fake.fail(ignore_range=True, times=99)
    notes: list[FileProgress] = []
    assert pull(hub, on_progress=notes.append).read_bytes() == DATA
    assert FileState.RETRYING not in {note.state for note in notes}
    assert len(writers) == 1


def test_a_resume_without_ranges_loses_nothing_when_it_is_cut_again(
    hub: Hub, fake: FakeHub
) -> None:
    leave(hub, blocks=(0, 1, 2, 5))
    fake.fail(ignore_range=True, close_after=30_000, times=99)
    with pytest.raises(HubError):
        pull(hub, attempts=1)
    assert partial_file.bytes_received(part_of(hub), len(DATA)) == 4 * BLOCK
    fake.faults.clear()
    assert pull(hub).read_bytes() == DATA


@pytest.mark.parametrize("times", [1, 3, 9])
def test_a_server_without_ranges_that_breaks_is_asked_again(
    hub: Hub, fake: FakeHub, times: int
) -> None:
    fake.fail(ignore_range=True, close_after=5000, times=times)
    fake.fail(ignore_range=True, times=99)
    assert pull(hub).read_bytes() == DATA


def test_a_page_in_place_of_the_file_is_not_written(hub: Hub, fake: FakeHub) -> None:
    leave(hub, blocks=(0,))
    fake.fail(status=200, times=99)
    with pytest.raises(HubError, match="another size than the Hub says"):
        pull(hub)
    assert part_of(hub).read_bytes() == DATA[:BLOCK]


def test_an_address_that_runs_out_is_asked_for_again(impatient: Hub, fake: FakeHub) -> None:
    def run_out(seen: Seen, offset: int) -> None:
        if offset == 4 * BLOCK:
            fake.signature = 1

    fake.pace = run_out
    fake.fail(at=0, stall_after=0)
    assert pull(impatient).read_bytes() == DATA
    assert len(fake.requests("hub", "HEAD")) > 1


def test_a_storage_that_moves_each_block_is_followed(hub: Hub, fake: FakeHub) -> None:
    with FakeHub() as elsewhere:
        elsewhere.add("x/y", {"m.gguf": DATA})
        fake.fail(redirect=f"{elsewhere.storage}/blobs/{sha256(DATA)}?signature=0", times=99)
        assert pull(hub).read_bytes() == DATA
        assert len(elsewhere.requests("storage")) == 11


def leave(hub: Hub, blocks: tuple[int, ...]) -> None:
    """Leave a download with these blocks whole."""
    part_of(hub).parent.mkdir(parents=True, exist_ok=True)
    with partial_file.PartialFile(part_of(hub), len(DATA)) as part:
        for block in blocks:
            part.write(block * BLOCK, DATA[block * BLOCK : (block + 1) * BLOCK])


def test_only_what_is_missing_is_fetched(hub: Hub, fake: FakeHub) -> None:
    leave(hub, blocks=(0, 3, 4, 9))
    assert pull(hub).read_bytes() == DATA
    assert sum(seen.sent for seen in fake.requests("storage")) == len(DATA) - 4 * BLOCK


@pytest.mark.parametrize("harm", ["no map", "a map of another size", "a part cut short"])
def test_what_the_disk_lost_is_fetched_again(hub: Hub, fake: FakeHub, harm: str) -> None:
    leave(hub, blocks=(0, 3, 4, 9))
    part, counts = part_of(hub), partial_file.counts_file(part_of(hub))
    if harm == "no map":
        counts.unlink()
    elif harm == "a map of another size":
        counts.write_bytes(bytes(5))
    else:
        part.write_bytes(part.read_bytes()[: 3 * BLOCK + 10])
        assert partial_file.bytes_received(part, len(DATA)) == BLOCK + 10
    assert pull(hub).read_bytes() == DATA
    assert not part.exists()
    assert not counts.exists()


def test_stopping_ends_all_connections_and_keeps_what_came(hub: Hub, fake: FakeHub) -> None:
    fake.fail(stall_after=8192, times=99)
    stop_at(8 * 8192, partial(pull, hub))
    (left,) = RepoCache(hub.cache_dir, REPO).unfinished()
    assert left.bytes_done == 8 * 8192


def test_a_full_disk_stops_all_connections_at_once(
    hub: Hub, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: partial_file.PartialFile, at: int, data: bytes) -> None:
        raise OSError(28, "No space left on device", "x")

    monkeypatch.setattr(partial_file.PartialFile, "write", full)
    with pytest.raises(HubError, match="The disk is full"):
        pull(hub)
    assert len(fake.requests("hub", "HEAD")) == 1

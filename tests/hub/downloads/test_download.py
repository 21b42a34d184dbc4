"""One file from a Hub where anything can go wrong, with the real huggingface_hub client."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import hf_hub_download, scan_cache_dir

from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.download import (
    FileSnapshot,
    RetryPolicy,
    StoppedError,
    StopSignal,
    download,
)
from eaglechat.hub.errors import GatedError, HubError, OfflineError
from eaglechat.hub.local.cache import RepoCache, Unfinished
from tests.hub.downloads.stopping import stop_at
from tests.hub.fakehub import FakeHub, sha256
from tests.waiting import until

REPO, FILE = "user/model", "model.gguf"
DATA = random.Random(1).randbytes(300_000)
QUICK = RetryPolicy(attempts=4, first_wait=0.01, longest_wait=0.02)


@pytest.fixture(autouse=True)
def model(fake: FakeHub) -> None:
    fake.add(REPO, {FILE: DATA, "config.json": b'{"a": 1}'})


def pull(hub: Hub, path: str = FILE, **options: object) -> Path:
    return download(hub, hub.repo(REPO).file(path), policy=QUICK, **options)  # type: ignore[arg-type]


def part_of(hub: Hub, data: bytes = DATA) -> Path:
    return RepoCache(hub.cache_dir, REPO).partial(sha256(data))


def leave(hub: Hub, data: bytes) -> None:
    """Leave the first bytes of a download."""
    part_of(hub).parent.mkdir(parents=True, exist_ok=True)
    part_of(hub).write_bytes(data)


def interrupt(hub: Hub, fake: FakeHub, at: int) -> None:
    """Leave a download that was interrupted after `at` bytes."""
    fake.fail(close_after=at)
    with pytest.raises(HubError):
        download(hub, hub.repo(REPO).file(FILE), policy=RetryPolicy(attempts=1))
    assert part_of(hub).stat().st_size == at
    fake.seen.clear()


def ranges(fake: FakeHub) -> list[str | None]:
    return [seen.range for seen in fake.requests("storage")]


def test_other_tools_find_the_file_where_they_look_for_it(hub: Hub, fake: FakeHub) -> None:
    path = pull(hub)
    assert path.read_bytes() == DATA
    theirs = hf_hub_download(REPO, FILE, cache_dir=hub.cache_dir, local_files_only=True)
    assert Path(theirs) == path
    info = scan_cache_dir(hub.cache_dir)
    assert not info.warnings
    (repo,) = info.repos
    (revision,) = repo.revisions
    assert (repo.repo_id, revision.refs) == (REPO, frozenset({"main"}))
    assert [(f.file_name, f.blob_path.name) for f in revision.files] == [(FILE, sha256(DATA))]
    assert list(path.resolve().parent.iterdir()) == [path.resolve()]
    assert pull(hub) == path
    assert len(fake.requests("storage")) == 1


def test_what_another_tool_fetched_is_not_fetched_again(hub: Hub, fake: FakeHub) -> None:
    theirs = hf_hub_download(REPO, FILE, cache_dir=hub.cache_dir, endpoint=fake.endpoint)
    assert pull(hub) == Path(theirs)
    assert len(fake.requests("storage")) == 1


def test_small_files_are_checked_against_their_git_hash(hub: Hub, fake: FakeHub) -> None:
    assert pull(hub, "config.json").read_bytes() == b'{"a": 1}'


def test_a_blob_that_was_not_linked_yet_is_only_linked(hub: Hub, fake: FakeHub) -> None:
    pull(hub).unlink()
    assert pull(hub).read_bytes() == DATA
    assert len(ranges(fake)) == 1


def test_truncated_bodies_are_continued_within_one_call(hub: Hub, fake: FakeHub) -> None:
    """However often: an attempt that got further is no failure."""
    fake.fail(close_after=30_000, times=8)
    assert pull(hub).read_bytes() == DATA
    assert ranges(fake) == [None, *(f"bytes={30_000 * n}-" for n in range(1, 9))]


@pytest.mark.parametrize("server", ["hub", "storage"])
def test_server_errors_are_waited_out(hub: Hub, fake: FakeHub, server: str) -> None:
    fake.fail(status=503, server=server, method="HEAD" if server == "hub" else "GET", times=3)
    notes: list[FileSnapshot] = []
    assert pull(hub, on_progress=notes.append).read_bytes() == DATA
    waits = [p.note for p in notes if p.state == "retrying"]
    assert len(waits) == 3
    assert "HTTP 503" in waits[0]
    assert "attempt 2 of 4" in waits[0]


def test_server_errors_end_after_a_bounded_number_of_attempts(hub: Hub, fake: FakeHub) -> None:
    fake.fail(status=500, times=99)
    with pytest.raises(HubError, match="HTTP 500"):
        pull(hub)
    assert len(ranges(fake)) == QUICK.attempts


def test_rate_limit_waits_as_long_as_the_hub_asks(hub: Hub, fake: FakeHub) -> None:
    fake.fail(status=429, headers={"Retry-After": "7"}, server="hub", method="HEAD")
    stop, notes = StopSignal(), []
    slept: list[float] = []
    stop.sleep = slept.append  # type: ignore[method-assign]

    assert pull(hub, stop=stop, on_progress=notes.append).read_bytes() == DATA
    assert slept == [7.0]
    assert any("too many requests" in note.note for note in notes)


def test_wrong_bytes_of_the_right_length_are_fetched_again(hub: Hub, fake: FakeHub) -> None:
    fake.fail(flip_byte=200_000)
    notes: list[FileSnapshot] = []
    assert pull(hub, on_progress=notes.append).read_bytes() == DATA
    assert any("arrived damaged" in note.note for note in notes)
    assert ranges(fake) == [None, None]


def test_bytes_that_stay_wrong_are_named_and_never_become_a_model(hub: Hub, fake: FakeHub) -> None:
    fake.fail(flip_byte=5, times=99)
    with pytest.raises(HubError, match=rf"{REPO}/{FILE} arrived damaged .*{sha256(DATA)[:12]}"):
        pull(hub)
    assert len(ranges(fake)) == 2
    assert not list(hub.cache_dir.rglob("snapshots/*/*"))
    assert not part_of(hub).exists()


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 403}, {"status": 404}, {"status": 416}, {"status": 429}, {"status": 500},
        {"shift_range": 7}, {"shift_range": -1}, {"content_range": "nonsense"},
        {"content_range": "bytes 50000-299999/5"}, {"content_range": "bytes 0-299999/*"},
        {"content_range": f"bytes {'9' * 5000}-1/2"},
        {"status": 200}, {"status": 200, "headers": {"Content-Type": "text/html"}},
        {"extra": b"more than was asked for"}, {"hang": True}, {"stall_after": 0},
        {"close_after": 0}, {"redirect": "http://127.0.0.1:9/gone"}, {"redirect": "ftp://x"},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_answer_is_one_sentence_and_costs_that_answer_only(
    impatient: Hub, fake: FakeHub, fault: dict[str, Any]
) -> None:
    interrupt(impatient, fake, 50_000)
    fake.fail(**fault)
    with pytest.raises(HubError, match=r"^[^\n]+\.$"):
        download(impatient, impatient.repo(REPO).file(FILE), policy=RetryPolicy(attempts=1))
    left = part_of(impatient).read_bytes()
    assert left[:50_000] == DATA[:50_000]
    assert DATA.startswith(left)
    fake.seen.clear()
    assert pull(impatient).read_bytes() == DATA
    assert set(ranges(fake)) <= {f"bytes={len(left)}-"}


def test_a_login_page_is_said_to_be_one(hub: Hub, fake: FakeHub) -> None:
    page = {"Content-Type": "text/html; charset=utf-8", "Content-Length": "6"}
    fake.repos[REPO].files[FILE] = b"broken"
    file = hub.repo(REPO).file(FILE)
    fake.fail(status=200, headers=page, times=99)
    with pytest.raises(HubError, match=r"A page came in place of .*: check the proxy, or log in"):
        download(hub, file, policy=QUICK)
    assert not list(hub.cache_dir.rglob("snapshots/*/*"))


def test_a_server_without_ranges_that_never_gets_further_is_given_up(
    hub: Hub, fake: FakeHub
) -> None:
    fake.fail(ignore_range=True, close_after=30_000, times=99)
    with pytest.raises(HubError, match=r"connection broke .*: try again to resume"):
        pull(hub)
    assert part_of(hub).read_bytes() == DATA[:30_000]


def test_a_body_longer_than_promised_is_not_taken(hub: Hub, fake: FakeHub) -> None:
    fake.fail(extra=bytes(50_000_000))
    assert pull(hub).read_bytes() == DATA
    # What does not end by itself must not fill the disk.
    assert fake.requests("storage")[0].sent < 25_000_000


def test_a_part_longer_than_the_file_loses_its_end(hub: Hub, fake: FakeHub) -> None:
    interrupt(hub, fake, 50_000)
    part_of(hub).write_bytes(DATA + b"tail")
    assert pull(hub).read_bytes() == DATA
    assert ranges(fake) == []


def test_what_came_of_another_revision_stays(hub: Hub, fake: FakeHub) -> None:
    interrupt(hub, fake, 50_000)
    fake.repos[REPO].files[FILE] = DATA[::-1]
    download(hub, hub.repo(REPO, fake.repos[REPO].commit).file(FILE))
    assert part_of(hub).stat().st_size == 50_000


def test_a_version_that_comes_during_a_download_is_not_mixed_in(hub: Hub, fake: FakeHub) -> None:
    fake.fail(close_after=100_000)

    def change(progress: FileSnapshot) -> None:
        if progress.state == "retrying":
            fake.add(REPO, {FILE: DATA[::-1]}, older=(fake.repos[REPO],))

    assert pull(hub, on_progress=change).read_bytes() == DATA


def test_the_token_goes_to_the_hub_and_nowhere_else(
    hub: Hub, fake: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    fake.repos[REPO].gated = True
    with FakeHub() as elsewhere:
        elsewhere.add("x/y", {"m.gguf": DATA})
        fake.fail(redirect=f"{elsewhere.storage}/blobs/{sha256(DATA)}?signature=0")
        assert pull(hub).read_bytes() == DATA
        assert {seen.token for seen in fake.requests("hub", "HEAD")} == {"hf_good"}
        assert [seen.token for seen in fake.requests("storage")] == [None]
        assert [seen.token for seen in elsewhere.requests("storage")] == [None]
    written = [p for p in tmp_path.rglob("*") if p.is_file() and b"hf_good" in p.read_bytes()]
    assert written == []


def test_gated_says_which_licence_and_how_to_log_in(hub: Hub, fake: FakeHub) -> None:
    fake.repos[REPO].gated = True
    with pytest.raises(GatedError) as caught:
        pull(hub)
    assert f"{fake.endpoint}/{REPO}" in str(caught.value)
    assert "hf auth login" in str(caught.value)
    assert len(fake.requests("hub", "HEAD")) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"path": "other.gguf"}, "not in its repository"),
        ({"repo": "user/none"}, "not on the Hub"),
        ({"commit": "9" * 40}, "no such revision"),
    ],
)
def test_what_is_missing_is_said_at_once(hub: Hub, change: dict[str, str], reason: str) -> None:
    file = replace(hub.repo(REPO).file(FILE), **change)
    with pytest.raises(HubError, match=reason):
        download(hub, file)


def test_a_pinned_hash_that_is_not_the_hubs_downloads_nothing(hub: Hub, fake: FakeHub) -> None:
    file = hub.repo(REPO).file(FILE)
    with pytest.raises(HubError, match="has changed on the Hub"):
        download(hub, replace(file, sha256="0" * 64))
    assert ranges(fake) == []


def test_free_disk_is_checked_first_and_the_shortfall_said(
    hub: Hub, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eaglechat.hub.downloads.download.free_bytes", lambda folder: 100_000)
    with pytest.raises(HubError, match="200 kB more are needed"):
        pull(hub)
    assert ranges(fake) == []
    leave(hub, DATA[:200_000])
    assert pull(hub).read_bytes() == DATA


def test_a_file_here_that_is_too_short_is_fetched_again(hub: Hub, fake: FakeHub) -> None:
    path = pull(hub)
    path.resolve().write_bytes(DATA[:10])
    assert pull(hub).read_bytes() == DATA


def test_without_a_network_it_ends_at_once(hub: Hub) -> None:
    nowhere = Hub("http://127.0.0.1:9", hub.cache_dir)
    with pytest.raises(OfflineError, match="Cannot reach the Hub for"):
        download(nowhere, hub.repo(REPO).file(FILE))


@pytest.mark.parametrize(("server", "method"), [("hub", "HEAD"), ("storage", "GET")])
def test_stopping_does_not_wait_for_an_answer(
    hub: Hub, fake: FakeHub, server: str, method: str
) -> None:
    file = hub.repo(REPO).file(FILE)
    fake.fail(hang=True, server=server, method=method)
    stop = StopSignal()
    threading.Thread(
        target=lambda: until(lambda: fake.requests(server, method)) and stop.set()
    ).start()
    with pytest.raises(StoppedError):
        download(hub, file, stop=stop)
    # The one that is left waiting has no lock: the next does not wait for it.
    assert pull(hub).read_bytes() == DATA


def test_stopping_interrupts_a_stalled_connection_and_keeps_what_came(
    hub: Hub, fake: FakeHub
) -> None:
    fake.fail(stall_after=64_000)
    stop_at(64_000, partial(pull, hub))
    (left,) = RepoCache(hub.cache_dir, REPO).unfinished().items()
    assert left == (part_of(hub), Unfinished(FILE, "main", len(DATA)))
    assert part_of(hub).stat().st_size == 64_000


def test_without_symbolic_links_the_file_is_moved_not_doubled(
    hub: Hub, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_SYMLINKS", True)
    path = pull(hub)
    assert not path.is_symlink()
    assert path.read_bytes() == DATA
    assert pull(hub) == path
    assert len(ranges(fake)) == 1
    total = sum(p.stat().st_size for p in hub.cache_dir.rglob("*") if p.is_file())
    assert total < 2 * len(DATA)

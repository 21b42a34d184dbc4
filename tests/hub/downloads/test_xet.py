"""Files in Xet storage come from there, by the real hf_xet client."""

from __future__ import annotations

import random
import sys
import threading
from pathlib import Path

import pytest
from huggingface_hub import constants, hf_hub_download

from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.download import (
    FileSnapshot,
    RetryPolicy,
    download,
)
from eaglechat.hub.errors import HubError
from eaglechat.hub.local.cache import RepoCache
from tests.hub.downloads.stopping import stop_at
from tests.hub.fakehub import XORB, FakeHub, Seen, sha256

pytest.importorskip("hf_xet")

REPO, FILE = "user/model", "model.gguf"
DATA = random.Random(3).randbytes(6 * XORB + 12_345)
QUICK = RetryPolicy(attempts=3, first_wait=0.01, longest_wait=0.02)


@pytest.fixture(autouse=True)
def too_large_for_http(fake: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake.add(REPO, {FILE: DATA})
    fake.is_xet = True
    monkeypatch.setattr(constants, "MAX_HTTP_DOWNLOAD_SIZE", len(DATA) - 1)
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    monkeypatch.setenv("HF_XET_CACHE", str(tmp_path / "xet"))


def pull(hub: Hub, **options: object) -> Path:
    return download(hub, hub.repo(REPO).file(FILE), policy=QUICK, **options)  # type: ignore[arg-type]


def here(hub: Hub) -> int:
    return RepoCache(hub.cache_dir, REPO).received(sha256(DATA))


class Held:
    """A pace: an object of the storage is not sent until the gate opens. The others are, because
    hf_xet asks for a few at a time, in any order."""

    def __init__(self, fake: FakeHub, number: int) -> None:
        self.number, self.gate, self._closing = number, threading.Event(), fake.closing

    def __call__(self, seen: Seen, offset: int) -> None:
        if int(seen.path.rpartition("/")[2].partition("?")[0]) == self.number:
            while not self.gate.is_set() and not self._closing.is_set():
                self.gate.wait(0.05)


def test_a_file_too_large_for_http_comes_from_xet_storage(hub: Hub, fake: FakeHub) -> None:
    progress: list[FileSnapshot] = []
    path = pull(hub, on_progress=progress.append)
    assert path.read_bytes() == DATA
    assert {seen.path.split("/")[1] for seen in fake.requests("storage")} == {"xorbs"}
    assert Path(hf_hub_download(REPO, FILE, cache_dir=hub.cache_dir, local_files_only=True)) == path
    assert list(path.resolve().parent.iterdir()) == [path.resolve()]
    assert "downloading" in {p.state for p in progress}
    assert all(p.bytes_done <= len(DATA) for p in progress)
    assert pull(hub) == path


def test_the_token_goes_to_the_hub_only(hub: Hub, fake: FakeHub) -> None:
    pull(hub)
    tokens = {(seen.path.split("/")[1], seen.token) for seen in fake.seen}
    assert tokens == {
        ("user", "hf_good"),
        ("api", "hf_good"),
        ("v2", "for_xet_only"),
        ("xorbs", None),
    }


@pytest.mark.parametrize("reason", ["switched off", "not installed", "not reached"])
def test_a_file_that_http_can_have_comes_over_http_without_xet_storage(
    hub: Hub, fake: FakeHub, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(constants, "MAX_HTTP_DOWNLOAD_SIZE", len(DATA))
    file = hub.repo(REPO).file(FILE)
    if reason == "switched off":
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    elif reason == "not installed":
        monkeypatch.setitem(sys.modules, "hf_xet", None)
    else:
        fake.fail(server="hub", status=404, times=99)
    assert download(hub, file, policy=QUICK).read_bytes() == DATA
    assert {seen.path.split("/")[1] for seen in fake.requests("storage")} == {"blobs"}


def test_a_hub_without_xet_storage_is_asked_over_http(hub: Hub, fake: FakeHub) -> None:
    fake.is_xet = False
    assert pull(hub).read_bytes() == DATA


def test_stops_at_once_while_nothing_comes_and_resumes_there(hub: Hub, fake: FakeHub) -> None:
    held = fake.pace = Held(fake, 3)
    stop_at(3 * XORB, lambda **options: pull(hub, **options))
    held.gate.set()
    assert here(hub) == 3 * XORB
    fake.seen.clear()
    progress: list[FileSnapshot] = []
    assert pull(hub, on_progress=progress.append).read_bytes() == DATA
    asked = [seen.range for seen in fake.requests("hub") if seen.path.startswith("/v2")]
    assert asked == [f"bytes={3 * XORB}-{len(DATA) - 1}"]
    assert min(p.bytes_done for p in progress if p.state == "downloading") >= 3 * XORB


def test_what_arrives_damaged_is_fetched_once_more(hub: Hub, fake: FakeHub) -> None:
    fake.fail(flip_byte=1000)
    assert pull(hub).read_bytes() == DATA


def test_what_stays_damaged_is_refused(hub: Hub, fake: FakeHub) -> None:
    fake.fail(flip_byte=1000, times=1000)
    with pytest.raises(HubError, match=r"arrived damaged .* a proxy or the network changes it"):
        pull(hub)
    assert not list(hub.cache_dir.rglob("*.part"))
    assert not list(hub.cache_dir.rglob("snapshots/*/*"))


def test_a_storage_that_fails_leaves_what_came(hub: Hub, fake: FakeHub) -> None:
    held = fake.pace = Held(fake, 2)
    stop_at(2 * XORB, lambda **options: pull(hub, **options))
    held.gate.set()
    fake.fail(status=404, times=1000)
    with pytest.raises(HubError, match=r"storage failed on user/model/model\.gguf"):
        download(hub, hub.repo(REPO).file(FILE), policy=RetryPolicy(attempts=1))
    assert here(hub) == 2 * XORB
    fake.faults.clear()
    assert pull(hub).read_bytes() == DATA


def test_without_hf_xet_it_says_what_to_install(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hf_xet", None)
    with pytest.raises(HubError, match="`pip install hf_xet`"):
        pull(hub)

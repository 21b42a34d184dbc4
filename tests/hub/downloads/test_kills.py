"""Whatever befalls a download, and however often its process is killed: no byte that is on the disk
is fetched again, nothing else ever looks like a model, and at the end the file is whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eaglechat.hub.local.cache import RepoCache
from tests.environment import variables_of
from tests.hub.fakehub import FakeHub, Seen, sha256
from tests.waiting import until

REPO, FILE = "user/model", "model.gguf"
PIECE, BLOCK = 4 << 10, 32 << 10
"""The server sends a piece only when all pieces before it, but the last BLOCK, are on the disk."""
CHILDREN = """
import os, sys
from pathlib import Path
from huggingface_hub import constants
from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.download import RetryPolicy, download
from eaglechat.hub.errors import HubError

constants.HF_HUB_OFFLINE = False
hub = Hub(sys.argv[1], Path(sys.argv[2]), waits=())
# What a first question imports and looks up is not done again in each process.
hub.repo("user/model")
for line in sys.stdin:
    child = os.fork()
    if not child:
        try:
            download(hub, hub.repo("user/model").file("model.gguf"), policy=RetryPolicy(2, 0, 0, 0))
        except HubError as error:
            os.write(2, f"{error}\\n".encode())
            os._exit(1)
        except BaseException as error:
            os.write(2, f"Traceback: {error!r}\\n".encode())
            os._exit(2)
        os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""
"""Downloads in a process of its own for each line, and prints its id and how it ended."""


class Download:
    """A file of a loopback Hub, a cache, and processes that download the one into the other."""

    def __init__(self, fake: FakeHub, home: Path, rng: random.Random) -> None:
        self.fake, self.rng, self.cache = fake, rng, home / "cache"
        self.versions: list[bytes] = []
        self.change()
        fake.piece, fake.pace = PIECE, self.pace
        self.kill_at: float = 0.0
        self.pid, self.is_over = 0, threading.Event()
        self.sent = 0
        self.answered: set[int] = set()
        """Requests of earlier processes."""
        self.errors = (home / "errors").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILDREN, fake.endpoint, str(self.cache)],
            env={**os.environ, **variables_of(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def change(self) -> None:
        """The Hub has another version from now on."""
        self.versions.append(self.rng.randbytes(self.rng.randrange(1, 8 * BLOCK)))
        self.fake.add(REPO, {FILE: self.versions[-1]})

    @property
    def data(self) -> bytes:
        return self.versions[-1]

    @property
    def left(self) -> bytes:
        """What is here of the newest version."""
        part = RepoCache(self.cache, REPO).partial(sha256(self.data))
        return part.read_bytes() if part.exists() else b""

    def pace(self, seen: Seen, offset: int) -> None:
        part = RepoCache(self.cache, REPO).partial(seen.path.split("/")[2].partition("?")[0])

        def is_over() -> bool:
            return self.is_over.is_set() or id(seen) in self.answered

        until(
            lambda: is_over() or part.stat().st_size >= offset - BLOCK,
            # Thousands of pieces wait here.
            meanwhile=lambda: time.sleep(0.0005),
        )
        if is_over():
            raise ConnectionResetError
        self.sent += PIECE
        if self.sent >= self.kill_at:
            self.kill()

    def kill(self) -> None:
        until(lambda: self.pid)
        if not self.is_over.is_set():
            os.kill(self.pid, signal.SIGKILL)

    def run(self, kill_at: float = float("inf")) -> int:
        """Download until the end, an error, or the death by so many bytes: 0, 1 or -9."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.kill_at, self.sent, self.pid = kill_at, 0, 0
        self.answered = {id(seen) for seen in self.fake.seen}
        self.is_over.clear()
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.pid = int(self.process.stdout.readline())
        status = int(self.process.stdout.readline())
        self.is_over.set()
        self.fake.faults.clear()
        return os.waitstatus_to_exitcode(status)

    def check(self) -> None:
        for file in self.cache.rglob("snapshots/*/*"):
            assert file.read_bytes() in self.versions


@pytest.fixture
def download(fake: FakeHub, tmp_path: Path) -> Iterator[Download]:
    made = Download(fake, tmp_path, random.Random(38))
    yield made
    made.process.kill()
    made.process.communicate()
    made.errors.close()


HARMLESS = ("", "break", "stall")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are made by fork")
@pytest.mark.parametrize("kills", [20, pytest.param(500, marks=pytest.mark.slow)])
def test_kills_and_faults_lose_nothing(download: Download, fake: FakeHub, kills: int) -> None:
    rng, n_killed, n_whole = download.rng, 0, 0
    while n_killed < kills:
        before = download.left
        at = rng.randrange(max(len(download.data) - len(before), 1))
        faults = {
            "": {},
            "break": {"close_after": at},
            "stall": {"stall_after": max(at, 1)},
            "no ranges": {"ignore_range": True},
            "no ranges, and a break": {"ignore_range": True, "close_after": at},
            "another part": {"shift_range": rng.choice((-1, 1, 7))},
            "nonsense": {"content_range": rng.choice(("", "bytes 0-5/6", "x", "bytes x-/"))},
            "a page": {"status": 200, "headers": {"Content-Type": "text/html"}},
            "too much": {"extra": b"more"},
            "a damaged byte": {"flip_byte": at},
            "a status": {"status": rng.choice((403, 404, 408, 416, 429, 500, 503))},
        }
        name = rng.choice(list(faults))
        if faults[name]:
            fake.fail(**faults[name])
        ended = download.run(at if name == "stall" else rng.choice((at, at, 2 * at, float("inf"))))
        assert ended in (0, 1, -signal.SIGKILL), (name, Path(download.errors.name).read_text())
        n_killed += ended < 0
        download.check()
        if name in HARMLESS and download.data.startswith(before):
            after = download.data if ended == 0 else download.left
            assert after.startswith(before), name
            assert download.data.startswith(after), name
            assert download.sent <= len(after) - len(before) + BLOCK + 2 * PIECE, name
        if ended == 0:
            n_whole += 1
            (whole,) = download.cache.rglob(f"snapshots/{fake.repos[REPO].commit}/*")
            assert whole.read_bytes() == download.data
        if ended == 0 or rng.random() < 0.05:
            download.change()

    assert download.run() == 0
    (whole,) = download.cache.rglob(f"snapshots/{fake.repos[REPO].commit}/*")
    assert whole.read_bytes() == download.data
    assert n_whole > kills // 10
    # Of all versions but the newest, that is not begun yet, nothing is left half done.
    assert not list(download.cache.rglob("*.part*"))

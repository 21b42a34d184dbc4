"""Whatever happens to a download and however often: the file at the end is whole, or an error says
why there is none."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from eaglechat.hub.downloads.client import Hub, Timeouts
from eaglechat.hub.downloads.download import FileProgress, RetryPolicy, download
from eaglechat.hub.downloads.transfer import StoppedError, StopSignal
from eaglechat.hub.errors import HubError
from eaglechat.hub.local import partial_file
from eaglechat.hub.local.cache import RepoCache
from tests.hub.fakehub import FakeHub, Seen, sha256

REPO, FILE = "user/model", "model.gguf"
BLOCK = 3000
PLACES = st.integers(0, 8 * BLOCK)
FAULTS = st.one_of(
    st.sampled_from([403, 404, 416, 429, 500, 503]).map(lambda status: {"status": status}),
    PLACES.map(lambda n: {"close_after": n}),
    st.sampled_from([-1, 1, 7, BLOCK]).map(lambda n: {"shift_range": n}),
    st.sampled_from(["", "bytes 0-5/6", "x"]).map(lambda text: {"content_range": text}),
    st.just({"ignore_range": True}),
    st.just({"etag": '"another"'}),
    st.just({"extra": b"more"}),
    st.integers(0, 100).map(lambda n: {"flip_byte": n}),
)


class Downloads(RuleBasedStateMachine):
    """The Hub's file, a cache, and everything that can befall them between two attempts."""

    @initialize(size=st.integers(101, 8 * BLOCK), seed=st.integers(0, 999))
    def begin(self, size: int, seed: int) -> None:
        self.own_block, partial_file.BLOCK = partial_file.BLOCK, BLOCK
        self.folder = Path(tempfile.mkdtemp())
        self.fake = FakeHub().__enter__()
        self.fake.piece = 512
        self.every: list[bytes] = []
        self.renew(seed, size)
        self.hub = Hub(self.fake.endpoint, self.folder / "cache", Timeouts(), ())

    def teardown(self) -> None:
        if hasattr(self, "own_block"):
            partial_file.BLOCK = self.own_block
            self.fake.__exit__()
            shutil.rmtree(self.folder)

    def renew(self, seed: int, size: int) -> None:
        self.data = random.Random(seed).randbytes(size)
        self.every.append(self.data)
        self.fake.add(REPO, {FILE: self.data})

    @property
    def part(self) -> Path:
        return RepoCache(self.hub.cache_dir, REPO).partial(sha256(self.data))

    def pull(self, attempts: int, stop: StopSignal | None = None) -> Path | None:
        policy = RetryPolicy(attempts, first_wait=0.0, longest_wait=0.0, longest_retry_after=0.0)

        def watch(progress: FileProgress) -> None:
            assert 0 <= progress.bytes_done <= len(self.data)

        try:
            return download(
                self.hub,
                self.hub.repo(REPO).file(FILE),
                policy=policy,
                stop=stop,
                on_progress=watch,
            )
        except (HubError, StoppedError):
            return None

    @rule(faults=st.lists(FAULTS, max_size=4), attempts=st.integers(1, 3))
    def attempt(self, faults: list[dict[str, object]], attempts: int) -> None:
        for fault in faults:
            self.fake.fail(**fault)
        path = self.pull(attempts)
        self.fake.faults.clear()
        if path is not None:
            assert path.read_bytes() == self.data

    @rule()
    def finish(self) -> None:
        path = self.pull(3)
        assert path is not None
        assert path.read_bytes() == self.data

    @rule(at=PLACES)
    def is_killed(self, at: int) -> None:
        """What a process leaves that is killed when the server has sent so much."""
        left, lock = self.folder / "left", threading.Lock()
        sent = [0]

        def pace(seen: Seen, offset: int) -> None:
            with lock:
                if sent[0] <= at < sent[0] + self.fake.piece:
                    self.copy_as_killed(left)
                sent[0] += self.fake.piece

        self.fake.pace = pace
        self.pull(1)
        self.fake.pace = lambda seen, offset: None
        if left.exists():
            shutil.rmtree(self.hub.cache_dir)
            left.rename(self.hub.cache_dir)

    def copy_as_killed(self, left: Path) -> None:
        """Counts before data: what was counted has been written."""
        cache = self.hub.cache_dir
        maps = {path: path.read_bytes() for path in cache.rglob("*" + partial_file.COUNTS)}
        shutil.copytree(cache, left, symlinks=True)
        for path, content in maps.items():
            (left / path.relative_to(cache)).write_bytes(content)

    @rule(at=PLACES)
    def is_stopped(self, at: int) -> None:
        stop = StopSignal()
        self.fake.pace = lambda seen, offset: stop.stop() if offset >= at else None
        self.pull(1, stop)
        self.fake.pace = lambda seen, offset: None

    @rule(seed=st.integers(0, 999))
    def changes_on_the_hub(self, seed: int) -> None:
        self.renew(seed, len(self.data))

    # No precondition: what an attempt leaves on the disk depends on the pace of its threads, and
    # Hypothesis must be able to choose the same rules again.
    @rule(at=PLACES, harm=st.sampled_from(["damage", "cut", "no map", "wrong map"]))
    def is_harmed_on_the_disk(self, at: int, harm: str) -> None:
        if not self.part.exists():
            return
        content = self.part.read_bytes()
        counts = partial_file.counts_file(self.part)
        if harm == "damage" and content:
            at %= len(content)
            self.part.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        elif harm == "cut":
            self.part.write_bytes(content[:at])
        elif harm == "no map":
            counts.unlink(missing_ok=True)
        elif harm == "wrong map" and counts.exists():
            counts.write_bytes(b"\xff" * len(counts.read_bytes()))

    @invariant()
    def nothing_else_is_a_model(self) -> None:
        if hasattr(self, "hub"):
            for file in self.hub.cache_dir.rglob("snapshots/*/*"):
                assert file.read_bytes() in self.every


TestDownloads = pytest.mark.slow(Downloads.TestCase)
TestDownloads.settings = settings(max_examples=40, stateful_step_count=12, deadline=None)

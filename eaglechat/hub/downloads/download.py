"""One file from the Hub into the Hugging Face cache, resumable at any byte.

Bytes go to a `.part` file beside the blob as they arrive, nothing is held back; the next run
fetches what is missing. Only when the whole hashes to the etag is it renamed to the blob and
linked, so a half-written file is never taken for a model. One process at a time writes: the others
wait on the lock huggingface_hub uses.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from filelock import Timeout
from huggingface_hub import constants
from huggingface_hub.utils import WeakFileLock

from eaglechat.hub.downloads.client import FileMetadata, Hub
from eaglechat.hub.downloads.explain import explain
from eaglechat.hub.downloads.stop import StopSignal
from eaglechat.hub.downloads.transfer import Transfer
from eaglechat.hub.downloads.xet import XetTransfer
from eaglechat.hub.errors import CorruptError, HubError, OfflineError, disk_full
from eaglechat.hub.local.cache import RepoCache, free_bytes
from eaglechat.hub.local.integrity import Hasher
from eaglechat.hub.local.parts import Part, arrived

_HASHED_AT_ONCE = 4 << 20
_LOCK_POLL_S = 0.2
_TIMES_FETCHED = 2
"""A file that arrives damaged is fetched once more from the start, not for ever."""


class Phase(str, Enum):
    """What a download is doing."""

    CONNECTING = "connecting"
    CHECKING = "checking"
    DOWNLOADING = "downloading"
    RETRYING = "retrying"
    WAITING = "waiting"


@dataclass(frozen=True)
class Progress:
    """Where a download stands; `note` is one sentence where there is something to say."""

    phase: Phase
    bytes_done: int
    bytes_total: int | None
    note: str = ""


@dataclass(frozen=True)
class FileRequest:
    """A file to have: of a repository at a revision, and its sha256 if the catalogue pins it."""

    repo: str
    path: str
    revision: str = "main"
    sha256: str | None = None

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"


@dataclass(frozen=True)
class RetryPolicy:
    """How long to insist: attempts without a byte of progress, and seconds between them."""

    attempts: int = 6
    first_wait: float = 1.0
    longest_wait: float = 30.0
    longest_retry_after: float = 600.0

    def wait(self, failures: int, retry_after: float | None) -> float:
        if retry_after is not None:
            return min(retry_after, self.longest_retry_after)
        wait = min(self.first_wait * 2.0 ** (failures - 1), self.longest_wait)
        return wait * random.uniform(0.75, 1.0)


def download(
    hub: Hub,
    request: FileRequest,
    *,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    stop: StopSignal | None = None,
    policy: RetryPolicy | None = None,
    reserved: Callable[[], int] = lambda: 0,
) -> Path:
    """Bring a file into the cache and return its path there; what is there is not fetched again.

    `reserved` is how many bytes of free disk are promised to others.
    Raises HubError, StoppedError.
    """
    return _Download(
        hub,
        request,
        on_progress=on_progress,
        stop=stop or StopSignal(),
        policy=policy or RetryPolicy(),
        reserved=reserved,
    ).run()


class _Download:
    def __init__(
        self,
        hub: Hub,
        request: FileRequest,
        *,
        on_progress: Callable[[Progress], None],
        stop: StopSignal,
        policy: RetryPolicy,
        reserved: Callable[[], int],
    ) -> None:
        self.hub = hub
        self.request = request
        self.cache = RepoCache(hub.cache_dir, request.repo)
        self.stop = stop
        self.policy = policy
        self.reserved = reserved
        self._on_progress = on_progress
        self._done = 0
        self._total: int | None = None
        self._progressed = False
        self._damaged = 0
        self._hasher: Hasher | None = None

    def run(self) -> Path:
        failures = 0
        while True:
            try:
                return self._attempt()
            except HubError as error:
                self.stop.check()
                failures = 1 if self._progressed else failures + 1
                self._progressed = False
                if not error.transient or failures >= self.policy.attempts:
                    raise
                if isinstance(error, OfflineError) and self._total is None:
                    raise
                wait = self.policy.wait(failures, error.retry_after)
                count = f"attempt {failures + 1} of {self.policy.attempts} in {wait:.0f} s"
                self._report(Phase.RETRYING, f"{error} ({count})")
                self.stop.sleep(wait)

    def _attempt(self) -> Path:
        self._report(Phase.CONNECTING)
        try:
            found = self.hub.metadata(self.request.repo, self.request.path, self.request.revision)
        except OfflineError:
            cached = self.cache.find(self.request.path, self.request.revision)
            if cached is None:
                raise
            return cached
        self.stop.check()
        self._check_pin(found)
        self._total = found.size
        try:
            return self._fetch(found)
        except OSError as error:
            raise explain(error, self.request.name) from error

    def _check_pin(self, found: FileMetadata) -> None:
        pinned = self.request.sha256
        if pinned is not None and pinned != found.etag:
            raise CorruptError(
                f"{self.request.name} on the Hub is not the file the catalogue means (sha256 "
                f"{found.etag[:12]}..., not {pinned[:12]}...): nothing was downloaded."
            )

    def _fetch(self, found: FileMetadata) -> Path:
        path, cache = self.request.path, self.cache
        pointer, blob = cache.pointer(found.commit, path), cache.blob(found.etag)
        blob.parent.mkdir(parents=True, exist_ok=True)
        self._forget_other_versions(found.etag)
        with self._lock(found.etag):
            present = pointer if pointer.exists() else blob
            if present.exists() and present.stat().st_size != found.size:
                # A file cut short by another tool: its size alone gives it away.
                self._report(Phase.CONNECTING, f"{path} here is damaged; downloading it again.")
                present.resolve().unlink()
            if not pointer.exists() and not blob.exists():
                self._complete(found)
                cache.part(found.etag).replace(blob)
                cache.forget(found.etag)
            self._done = found.size
            return cache.link(found.etag, found.commit, path, self.request.revision)

    def _complete(self, found: FileMetadata) -> None:
        """Fetch what is missing, and see that the whole is what the Hub says."""
        self.cache.write_record(found.etag, self.request.path, self.request.revision, found.size)
        folder = self.cache.part(found.etag).parent
        with Part(self.cache.part(found.etag), found.size) as part:
            begun = self._done = part.done
            missing = found.size - begun + self.reserved() - free_bytes(folder)
            if missing > 0:
                raise disk_full(self.request.name, missing, folder)
            hasher = self._hasher_of(found, part)
            try:
                self._receive(found, part, hasher)
            finally:
                self._progressed = part.done > begun
            part.sync()
            while self._hash(part, hasher):
                self.stop.check()
                self._report(Phase.CHECKING, "checking the download")
        if not hasher.matches():
            self.cache.forget(found.etag)
            self._refuse_damaged(hasher, found)

    def _receive(self, found: FileMetadata, part: Part, hasher: Hasher) -> None:
        # Over plain HTTP the Hub has nothing larger.
        is_xet = found.xet is not None and found.size > constants.MAX_HTTP_DOWNLOAD_SIZE
        by = XetTransfer if is_xet else Transfer
        transfer = by(self.hub, found, self.request.name, part, self.stop)

        def on_step() -> bool:
            self._done = part.done
            note = "" if transfer.resumes else "the Hub sends this file from its start only"
            self._report(Phase.DOWNLOADING, note)
            return self._hash(part, hasher)

        transfer.run(on_step)
        self._done = part.done

    def _hasher_of(self, found: FileMetadata, part: Part) -> Hasher:
        """A hasher that has seen nothing but what is here: the last attempt's, or a new one."""
        last = self._hasher
        if last is None or last.etag != found.etag or last.count > part.unbroken():
            last = self._hasher = Hasher(found.etag, found.size)
        return last

    def _hash(self, part: Part, hasher: Hasher) -> bool:
        """Hash some of what has arrived without a gap; False once it was all."""
        left = part.unbroken() - hasher.count
        hasher.update(part.read(hasher.count, min(left, _HASHED_AT_ONCE)))
        return left > _HASHED_AT_ONCE

    def _refuse_damaged(self, hasher: Hasher, found: FileMetadata) -> None:
        self._hasher = None
        self._damaged += 1
        again = self._damaged < _TIMES_FETCHED
        advice = (
            "downloading it again" if again else "a proxy or the network changes it; try another"
        )
        raise CorruptError(
            f"{self.request.name} arrived damaged ({hasher.digest()[:12]}..., the Hub says "
            f"{found.etag[:12]}...): {advice}.",
            transient=again,
            retry_after=0.0,
        )

    def _forget_other_versions(self, etag: str) -> None:
        """Drop what had arrived of a version of this file that the Hub has replaced."""
        for other in self.cache.unfinished():
            other_etag = other.part.name.partition(".")[0]
            same_file = (other.path, other.revision) == (self.request.path, self.request.revision)
            if not same_file or other_etag == etag:
                continue
            try:
                with WeakFileLock(self.cache.lock(other_etag), timeout=_LOCK_POLL_S):
                    self.cache.forget(other_etag)
            except Timeout:
                continue

    @contextmanager
    def _lock(self, etag: str) -> Iterator[None]:
        path = self.cache.lock(etag)
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                with WeakFileLock(path, timeout=_LOCK_POLL_S):
                    yield
                    return
            except Timeout:
                self.stop.check()
                self._done = arrived(self.cache.part(etag), self._total or 0)
                self._report(Phase.WAITING, "another program is downloading this file")

    def _report(self, phase: Phase, note: str = "") -> None:
        self._on_progress(Progress(phase, self._done, self._total, note))

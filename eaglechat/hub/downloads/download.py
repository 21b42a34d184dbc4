"""Downloads one file from the Hub into the Hugging Face cache, and resumes at any byte.

Bytes are written to a partial file beside the blob as they arrive (`partial_file.py`); the next
attempt or run fetches only the missing ranges (`transfer.py`). The partial file becomes the blob,
and is linked, when its hash equals the etag, so an incomplete file never looks like a model.
Only one process writes a file: the others wait for the lock that huggingface_hub uses too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from filelock import Timeout
from huggingface_hub import constants
from huggingface_hub.utils import WeakFileLock

from eaglechat.hub.downloads.client import FileMetadata, Hub
from eaglechat.hub.downloads.explain import explain
from eaglechat.hub.downloads.transfer import StopSignal, Transfer, XetTransfer
from eaglechat.hub.errors import CorruptError, HubError, OfflineError, disk_full
from eaglechat.hub.local.cache import Hasher, RepoCache, free_bytes
from eaglechat.hub.local.partial_file import PartialFile, bytes_received

_HASHED_AT_ONCE = 4 << 20
_LOCK_POLL_S = 0.2
_MOST_DAMAGED = 2
"""A file that arrives with a wrong hash is fetched once more from the start, then given up."""


class Phase(str, Enum):
    """What a download is doing."""

    CONNECTING = "connecting"
    CHECKING = "checking"
    DOWNLOADING = "downloading"
    RETRYING = "retrying"
    WAITING = "waiting"


@dataclass(frozen=True)
class Progress:
    """Progress of a download in bytes; `note` is a sentence for the user, or empty."""

    phase: Phase
    bytes_done: int
    bytes_total: int | None
    note: str = ""


@dataclass(frozen=True)
class FileRequest:
    """A file of a repository at a revision. `sha256` is set if the catalogue pins the file."""

    repo: str
    path: str
    revision: str = "main"
    sha256: str | None = None
    size: int | None = field(default=None, compare=False)
    """Bytes, if known before the Hub is asked; for display only."""

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"


@dataclass(frozen=True)
class RetryPolicy:
    """The most attempts in a row that receive no byte, and the seconds between them."""

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
    """Download a file into the cache unless it is there, and return its path.

    `reserved` returns how many bytes of the free disk space other downloads will take.
    Raises HubError, StoppedError.
    """
    stop, policy = stop or StopSignal(), policy or RetryPolicy()
    return _Download(hub, request, on_progress, stop, policy=policy, reserved=reserved).run()


class _Download:
    def __init__(
        self,
        hub: Hub,
        request: FileRequest,
        on_progress: Callable[[Progress], None],
        stop: StopSignal,
        *,
        policy: RetryPolicy,
        reserved: Callable[[], int],
    ) -> None:
        self.hub, self.request = hub, request
        self.stop, self.policy, self.reserved = stop, policy, reserved
        self.cache = RepoCache(hub.cache_dir, request.repo)
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
            metadata = self.hub.metadata(
                self.request.repo, self.request.path, self.request.revision
            )
        except OfflineError:
            cached = self.cache.find(self.request.path, self.request.revision)
            if cached is None:
                raise
            return cached
        self.stop.check()
        self._check_pin(metadata)
        self._total = metadata.size
        try:
            return self._fetch(metadata)
        except OSError as error:
            raise explain(error, self.request.name) from error

    def _check_pin(self, metadata: FileMetadata) -> None:
        pinned = self.request.sha256
        if pinned is not None and pinned != metadata.etag:
            raise CorruptError(
                f"{self.request.name} on the Hub is not the file the catalogue means (sha256 "
                f"{metadata.etag[:12]}..., not {pinned[:12]}...): nothing was downloaded."
            )

    def _fetch(self, metadata: FileMetadata) -> Path:
        path, cache = self.request.path, self.cache
        pointer, blob = cache.pointer(metadata.commit, path), cache.blob(metadata.etag)
        blob.parent.mkdir(parents=True, exist_ok=True)
        self._discard_other_versions(metadata.etag)
        with self._lock(metadata.etag):
            present = pointer if pointer.exists() else blob
            if present.exists() and present.stat().st_size != metadata.size:
                # Another program left an incomplete file: only its size shows it.
                self._report(Phase.CONNECTING, f"{path} here is damaged; downloading it again.")
                present.resolve().unlink()
            if not pointer.exists() and not blob.exists():
                self._complete(metadata)
                cache.partial(metadata.etag).replace(blob)
                cache.discard_partial(metadata.etag)
            self._done = metadata.size
            return cache.link(metadata.etag, metadata.commit, path, self.request.revision)

    def _complete(self, metadata: FileMetadata) -> None:
        """Fetch what is missing, and check the hash of the file."""
        self.cache.write_record(
            metadata.etag, self.request.path, self.request.revision, metadata.size
        )
        path = self.cache.partial(metadata.etag)
        with PartialFile(path, metadata.size) as partial:
            before = self._done = partial.received
            missing = metadata.size - before + self.reserved() - free_bytes(path.parent)
            if missing > 0:
                raise disk_full(self.request.name, missing, path.parent)
            hasher = self._hasher_for(metadata, partial)
            try:
                self._receive(metadata, partial, hasher)
            finally:
                self._progressed = partial.received > before
            partial.sync()
            while self._hash(partial, hasher):
                self.stop.check()
                self._report(Phase.CHECKING, "checking the download")
        if not hasher.matches():
            self.cache.discard_partial(metadata.etag)
            self._refuse_damaged(hasher, metadata)

    def _receive(self, metadata: FileMetadata, partial: PartialFile, hasher: Hasher) -> None:
        # The Hub does not serve larger files over plain HTTP.
        is_xet = metadata.xet is not None and metadata.size > constants.MAX_HTTP_DOWNLOAD_SIZE
        transfer_type = XetTransfer if is_xet else Transfer
        transfer = transfer_type(self.hub, metadata, self.request.name, partial, self.stop)

        def on_step() -> bool:
            self._done = partial.received
            note = "" if transfer.supports_ranges else "the Hub sends this file from its start only"
            self._report(Phase.DOWNLOADING, note)
            return self._hash(partial, hasher)

        transfer.run(on_step)
        self._done = partial.received

    def _hasher_for(self, metadata: FileMetadata, partial: PartialFile) -> Hasher:
        """The last attempt's hasher, so that no byte is hashed twice; a new one if the Hub has
        another version now, or if bytes that it hashed are not in the partial file any more."""
        last = self._hasher
        if last is None or last.etag != metadata.etag or last.count > partial.received_from_start:
            last = self._hasher = Hasher(metadata.etag, metadata.size)
        return last

    def _hash(self, partial: PartialFile, hasher: Hasher) -> bool:
        """Hash at most _HASHED_AT_ONCE bytes; True if more bytes can be hashed now.

        Only bytes before the first gap can be hashed.
        """
        left = partial.received_from_start - hasher.count
        hasher.update(partial.read(hasher.count, min(left, _HASHED_AT_ONCE)))
        return left > _HASHED_AT_ONCE

    def _refuse_damaged(self, hasher: Hasher, metadata: FileMetadata) -> None:
        self._hasher = None
        self._damaged += 1
        again = self._damaged < _MOST_DAMAGED
        advice = (
            "downloading it again" if again else "a proxy or the network changes it; try another"
        )
        raise CorruptError(
            f"{self.request.name} arrived damaged ({hasher.digest()[:12]}..., the Hub says "
            f"{metadata.etag[:12]}...): {advice}.",
            transient=again,
            retry_after=0.0,
        )

    def _discard_other_versions(self, etag: str) -> None:
        """Delete partial files of versions of this file that the Hub has replaced."""
        for other in self.cache.unfinished():
            other_etag = other.partial.name.partition(".")[0]
            same_file = (other.path, other.revision) == (self.request.path, self.request.revision)
            if not same_file or other_etag == etag:
                continue
            try:
                with WeakFileLock(self.cache.lock(other_etag), timeout=_LOCK_POLL_S):
                    self.cache.discard_partial(other_etag)
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
                self._done = bytes_received(self.cache.partial(etag), self._total or 0)
                self._report(Phase.WAITING, "another program is downloading this file")

    def _report(self, phase: Phase, note: str = "") -> None:
        self._on_progress(Progress(phase, self._done, self._total, note))

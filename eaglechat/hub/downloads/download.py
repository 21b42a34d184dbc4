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
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from filelock import Timeout
from huggingface_hub import constants
from huggingface_hub.utils import WeakFileLock

from eaglechat.hub.downloads.client import FileMetadata, Hub, RemoteFile
from eaglechat.hub.downloads.explain import explain
from eaglechat.hub.downloads.transfer import StopSignal, Transfer, XetTransfer
from eaglechat.hub.errors import HubError, OfflineError, disk_full
from eaglechat.hub.local.cache import Hasher, RepoCache, free_bytes
from eaglechat.hub.local.installed import note_hash
from eaglechat.hub.local.partial_file import PartialFile, bytes_received
from eaglechat.hub.local.stores import find_file

_HASHED_AT_ONCE = 4 << 20
_LOCK_POLL_S = 0.2
_MOST_DAMAGED = 2
"""A file that arrives with a wrong hash is fetched once more from the start, then given up."""


class FileState(str, Enum):
    """What is happening to a file that is to be downloaded."""

    QUEUED = "queued"
    CONNECTING = "connecting"
    CHECKING = "checking"
    DOWNLOADING = "downloading"
    RETRYING = "retrying"
    WAITING = "waiting"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class FileProgress:
    """Progress of a running download in bytes; `note` is a sentence for the user, or empty."""

    state: FileState
    bytes_done: int
    note: str = ""


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
    file: RemoteFile,
    *,
    on_progress: Callable[[FileProgress], None] = lambda progress: None,
    stop: StopSignal | None = None,
    policy: RetryPolicy | None = None,
    reserved: Callable[[], int] = lambda: 0,
) -> Path:
    """Download a file at its commit into the cache unless it is there or another program has it,
    and return its path.

    `reserved` returns how many bytes of the free disk space other downloads will take.
    Raises HubError, StoppedError.
    """
    stop, policy = stop or StopSignal(), policy or RetryPolicy()
    if not RepoCache(hub.cache_dir, file.repo).pointer(file.commit, file.path).exists():
        elsewhere = find_file(file.repo, file.path, file.size, file.sha256)
        if elsewhere is not None:
            note_hash(file.repo, file.revision, file.path, file.sha256)
            return elsewhere
    return _Download(hub, file, on_progress, stop, policy, reserved).run()


@dataclass
class _Download:
    hub: Hub
    file: RemoteFile
    on_progress: Callable[[FileProgress], None]
    stop: StopSignal
    policy: RetryPolicy
    reserved: Callable[[], int]
    done: int = 0
    """Bytes that are here."""
    reached_hub: bool = False
    progressed: bool = False
    """Whether the last attempt received a byte."""
    times_damaged: int = 0
    hasher: Hasher | None = None

    def __post_init__(self) -> None:
        self.cache = RepoCache(self.hub.cache_dir, self.file.repo)

    def run(self) -> Path:
        failures = 0
        while True:
            try:
                return self._attempt()
            except HubError as error:
                self.stop.check()
                failures = 1 if self.progressed else failures + 1
                self.progressed = False
                if not error.transient or failures >= self.policy.attempts:
                    raise
                if isinstance(error, OfflineError) and not self.reached_hub:
                    raise
                wait = self.policy.wait(failures, error.retry_after)
                count = f"attempt {failures + 1} of {self.policy.attempts} in {wait:.0f} s"
                self._report(FileState.RETRYING, f"{error} ({count})")
                self.stop.sleep(wait)

    def _attempt(self) -> Path:
        self._report(FileState.CONNECTING)
        file = self.file
        metadata = self.hub.metadata(file.repo, file.path, file.commit)
        self.stop.check()
        if file.sha256 not in (None, metadata.etag):
            raise HubError(
                f"{file.name} on the Hub is not the file the catalogue means (sha256 "
                f"{metadata.etag[:12]}..., not {file.sha256[:12]}...): nothing was downloaded."
            )
        self.reached_hub = True
        try:
            return self._fetch(metadata)
        except OSError as error:
            raise explain(error, file.name) from error

    def _fetch(self, metadata: FileMetadata) -> Path:
        path, cache = self.file.path, self.cache
        pointer, blob = cache.pointer(metadata.commit, path), cache.blob(metadata.etag)
        blob.parent.mkdir(parents=True, exist_ok=True)
        self._discard_other_versions(metadata.etag)
        with self._lock(metadata.etag):
            present = pointer if pointer.exists() else blob
            if present.exists() and present.stat().st_size != metadata.size:
                # Another program left an incomplete file: only its size shows it.
                self._report(FileState.CONNECTING, f"{path} here is damaged; downloading it again.")
                cache.delete(present)
            if not pointer.exists() and not blob.exists():
                self._complete(metadata)
                cache.partial(metadata.etag).replace(blob)
                cache.discard_partial(metadata.etag)
            self.done = metadata.size
            return cache.link(metadata.etag, metadata.commit, path, self.file.revision)

    def _complete(self, metadata: FileMetadata) -> None:
        """Fetch what is missing, and check the hash of the file."""
        name, etag, size = self.file.name, metadata.etag, metadata.size
        self.cache.write_record(etag, self.file.path, self.file.revision, size)
        path = self.cache.partial(etag)
        with PartialFile(path, size) as partial:
            before = self.done = partial.received
            missing = size - before + self.reserved() - free_bytes(path.parent)
            if missing > 0:
                raise disk_full(name, missing, path.parent)
            hasher = self.hasher
            # The last attempt's hasher goes on, so that no byte is hashed twice, unless the Hub has
            # another version now, or the partial file has lost bytes that were hashed.
            if hasher is None or hasher.etag != etag or hasher.count > partial.received_from_start:
                hasher = self.hasher = Hasher(etag, size)
            try:
                self._receive(metadata, partial, hasher)
            finally:
                self.progressed = partial.received > before
            partial.sync()
            while _hash(partial, hasher):
                self.stop.check()
                self._report(FileState.CHECKING, "checking the download")
        if hasher.matches():
            return
        self.cache.discard_partial(etag)
        self.hasher = None
        self.times_damaged += 1
        again = self.times_damaged < _MOST_DAMAGED
        advice = (
            "downloading it again" if again else "a proxy or the network changes it; try another"
        )
        raise HubError(
            f"{name} arrived damaged ({hasher.digest()[:12]}..., the Hub says {etag[:12]}...): "
            f"{advice}.",
            transient=again,
            retry_after=0.0,
        )

    def _receive(self, metadata: FileMetadata, partial: PartialFile, hasher: Hasher) -> None:
        # The Hub does not serve larger files over plain HTTP.
        is_xet = metadata.xet is not None and metadata.size > constants.MAX_HTTP_DOWNLOAD_SIZE
        transfer_type = XetTransfer if is_xet else Transfer
        transfer = transfer_type(self.hub, metadata, self.file.name, partial, self.stop)

        def on_step() -> bool:
            self.done = partial.received
            note = "" if transfer.supports_ranges else "the Hub sends this file from its start only"
            self._report(FileState.DOWNLOADING, note)
            return _hash(partial, hasher)

        transfer.run(on_step)
        self.done = partial.received

    def _discard_other_versions(self, etag: str) -> None:
        """Delete partial files of versions of this file that the Hub has replaced."""
        for other in self.cache.unfinished():
            other_etag = other.partial.name.partition(".")[0]
            same_file = (other.path, other.revision) == (self.file.path, self.file.revision)
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
                self.done = bytes_received(self.cache.partial(etag), self.file.size)
                self._report(FileState.WAITING, "another program is downloading this file")

    def _report(self, state: FileState, note: str = "") -> None:
        self.on_progress(FileProgress(state, self.done, note))


def _hash(partial: PartialFile, hasher: Hasher) -> bool:
    """Hash at most _HASHED_AT_ONCE bytes; True if more bytes can be hashed now.

    Only bytes before the first gap can be hashed.
    """
    left = partial.received_from_start - hasher.count
    hasher.update(partial.read(hasher.count, min(left, _HASHED_AT_ONCE)))
    return left > _HASHED_AT_ONCE

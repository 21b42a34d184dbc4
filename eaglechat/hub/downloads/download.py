"""One file from the Hub into the Hugging Face cache, resumable at any byte.

Bytes are appended to a `.part` file beside the blob as they arrive, nothing is held back; the next
run goes on from its length. Only when the whole hashes to the etag is it renamed to the blob and
linked, so a half-written file is never taken for a model. One process at a time appends: the others
wait on the lock huggingface_hub uses.
"""

from __future__ import annotations

import os
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

from filelock import Timeout
from huggingface_hub.utils import WeakFileLock

from eaglechat.hub.downloads.client import FileMetadata, Hub
from eaglechat.hub.downloads.explain import explain
from eaglechat.hub.errors import CorruptError, HubError, OfflineError, disk_full
from eaglechat.hub.local.cache import RECORD, RepoCache, free_bytes
from eaglechat.hub.local.integrity import Hasher

_READ = 1 << 20
_LOCK_POLL_S = 0.2
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
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


class StoppedError(Exception):
    """The download was stopped; what has arrived stays."""


class StopSignal:
    """Stops a download at once, from any thread: also one that waits for the network."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._socket: socket.socket | None = None

    def stop(self) -> None:
        self._stopped.set()
        connection = self._socket
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def check(self) -> None:
        """Raises StoppedError."""
        if self._stopped.is_set():
            raise StoppedError

    def sleep(self, seconds: float) -> None:
        """Raises StoppedError."""
        self._stopped.wait(seconds)
        self.check()

    @contextmanager
    def interrupts(self, response: Any) -> Iterator[None]:
        """While inside, stopping shuts the response's connection down."""
        self._socket = response.extensions["network_stream"].get_extra_info("socket")
        try:
            self.check()
            yield
        finally:
            self._socket = None


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
                self._report(Phase.CONNECTING, f"{path} here is damaged; fetching it again.")
                present.resolve().unlink()
            if not pointer.exists() and not blob.exists():
                self._complete(found, cache.part(found.etag))
                cache.part(found.etag).replace(blob)
                cache.record(found.etag).unlink(missing_ok=True)
            self._done = found.size
            return cache.link(found.etag, found.commit, path, self.request.revision)

    def _complete(self, found: FileMetadata, part: Path) -> None:
        """Append what is missing to the part, and see that the whole is what the Hub says."""
        self.cache.write_record(found.etag, self.request.path, self.request.revision, found.size)
        with part.open("ab", buffering=0) as file:
            if file.tell() > found.size:
                file.truncate(0)
            self._done = file.tell()
            missing = found.size - self._done + self.reserved() - free_bytes(part.parent)
            if missing > 0:
                raise disk_full(self.request.name, missing, part.parent)
            hasher = self._hasher_of(found, part)
            if self._done < found.size:
                self._receive(found, file, hasher)
            os.fsync(file.fileno())
        if self._done != found.size:
            raise HubError(
                f"The connection for {self.request.name} ended early: try again to go on from "
                "there.",
                transient=True,
            )
        if not hasher.matches():
            self._refuse_damaged(part, hasher, found)

    def _hasher_of(self, found: FileMetadata, part: Path) -> Hasher:
        """A hasher that has seen what is here: the last attempt's, or one that reads the part."""
        last = self._hasher
        if last is not None and (last.etag, last.count) == (found.etag, self._done):
            return last
        self._hasher = hasher = Hasher(found.etag, found.size)
        if self._done:
            self._report(Phase.CHECKING, "checking what is here already")
            with part.open("rb") as file:
                for chunk in iter(lambda: file.read(_READ), b""):
                    self.stop.check()
                    hasher.update(chunk)
        return hasher

    def _receive(self, found: FileMetadata, file: BinaryIO, hasher: Hasher) -> None:
        with self.hub.stream(found.location, self.request.name, self._done) as response:
            self._accept_range(response, found, file, hasher)
            with self.stop.interrupts(response):
                for chunk in response.iter_bytes():
                    self.stop.check()
                    if self._done + len(chunk) > found.size:
                        self._discard(file)
                        raise HubError(
                            f"{self.request.name} is longer on the Hub than the Hub says.",
                            transient=True,
                        )
                    _write_all(file, chunk)
                    hasher.update(chunk)
                    self._done += len(chunk)
                    self._progressed = True
                    self._report(Phase.DOWNLOADING)
                self.stop.check()

    def _accept_range(
        self, response: Any, found: FileMetadata, file: BinaryIO, hasher: Hasher
    ) -> None:
        """See that the body begins where the part ends; start over where it cannot."""
        if not self._done:
            return
        if response.status_code == 200:
            self._report(Phase.DOWNLOADING, "the Hub cannot resume this file; starting again")
            self._discard(file)
            hasher.reset()
            return
        match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if not match or int(match[1]) != self._done or match[2] not in ("*", str(found.size)):
            self._discard(file)
            raise HubError(
                f"The Hub sent another part of {self.request.name} than was asked for.",
                transient=True,
            )

    def _discard(self, file: BinaryIO) -> None:
        file.truncate(0)
        self._done = 0

    def _refuse_damaged(self, part: Path, hasher: Hasher, found: FileMetadata) -> None:
        part.unlink()
        self._damaged += 1
        again = self._damaged < _TIMES_FETCHED
        advice = "fetching it again" if again else "a proxy or the network changes it; try another"
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
                    other.part.unlink(missing_ok=True)
                    other.part.with_name(other_etag + RECORD).unlink(missing_ok=True)
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
                part = self.cache.part(etag)
                self._done = part.stat().st_size if part.exists() else self._done
                self._report(Phase.WAITING, "another program is downloading this file")

    def _report(self, phase: Phase, note: str = "") -> None:
        self._on_progress(Progress(phase, self._done, self._total, note))


def _write_all(file: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]

"""Downloads one file from the Hub into the Hugging Face cache, and resumes where it stopped.

The bytes come in order, from hf_xet's stream or from one HTTP request, and are appended to a
partial file beside the blob as they arrive: its length says how many are here, after a crash too.
It is named by the file's etag, so bytes of another version never follow. When all are here and
their hash is the etag, it becomes the blob and is linked: what is incomplete never looks like a
model. Only one process writes a file: the others wait for the lock that huggingface_hub uses too.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from io import FileIO
from pathlib import Path
from queue import Empty, Queue
from typing import Literal, TypeVar

from filelock import Timeout
from huggingface_hub import constants
from huggingface_hub.utils import WeakFileLock

from eaglechat.hub.downloads.client import FileMetadata, Hub, RemoteFile
from eaglechat.hub.downloads.explain import explain
from eaglechat.hub.errors import HubError, OfflineError, disk_full
from eaglechat.hub.local.cache import RepoCache, free_bytes
from eaglechat.hub.local.installed import note_hash
from eaglechat.hub.local.library import files_here, find_file

_HASHED_AT_ONCE = 4 << 20
_STEP_S = 0.1
_LOCK_POLL_S = 0.2
_WAITING = 2
"""Pieces that came and were not written yet: at most 64 KiB each over HTTP."""
_XET_BUFFER = 128 << 20
"""Bytes that hf_xet fetches ahead, in memory: those of a download that is stopped are lost."""
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
Item = TypeVar("Item")


FileState = Literal[
    "queued", "connecting", "checking", "downloading", "retrying", "waiting", "paused", "done",
    "failed",
]  # fmt: skip
"""What is happening to a file that is to be downloaded."""


@dataclass(frozen=True)
class FileSnapshot:
    """Progress of one file. `note` is a sentence for the user, or empty; `speed` in bytes per
    second is set while it downloads, `path` when it is here."""

    remote: RemoteFile
    state: FileState = "queued"
    bytes_done: int = 0
    note: str = ""
    speed: float | None = None
    path: Path | None = None

    @property
    def eta(self) -> float | None:
        """Seconds that are left."""
        return (self.remote.size - self.bytes_done) / self.speed if self.speed else None


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
        return min(self.first_wait * 2.0 ** (failures - 1), self.longest_wait)


class StoppedError(Exception):
    """The download was stopped; the bytes received stay."""


class StopSignal(threading.Event):
    """Once it is set, from any thread, one download stops at once, even while it waits for the
    network."""

    def check(self) -> None:
        """Raises StoppedError."""
        if self.is_set():
            raise StoppedError

    def sleep(self, seconds: float) -> None:
        """Raises StoppedError."""
        self.wait(seconds)
        self.check()


def download(
    hub: Hub,
    file: RemoteFile,
    *,
    on_progress: Callable[[FileSnapshot], None] = lambda progress: None,
    stop: StopSignal | None = None,
    policy: RetryPolicy | None = None,
) -> Path:
    """Download a file at its commit into the cache unless it is there or another program has it,
    and return its path.

    `on_progress` is called in this thread, every _STEP_S at least while bytes are waited for.
    Raises HubError, StoppedError.
    """
    try:
        if not RepoCache(hub.cache_dir, file.repo).pointer(file.commit, file.path).exists():
            here = files_here(cache=hub.cache_dir)
            elsewhere = find_file(here, file.repo, file.path, file.size, file.sha256)
            if elsewhere is not None:
                note_hash(file.repo, file.revision, file.path, file.sha256)
                return elsewhere
        return _Download(
            hub, file, on_progress, stop or StopSignal(), policy or RetryPolicy()
        ).run()
    except OSError as error:
        raise explain(error, file.name) from error


@dataclass
class _Download:
    hub: Hub
    file: RemoteFile
    on_progress: Callable[[FileSnapshot], None]
    stop: StopSignal
    policy: RetryPolicy
    done: int = 0
    """Bytes that are here."""
    reached_hub: bool = False
    was_damaged: bool = False
    """A file that arrives with a wrong hash is fetched once more from the start, then given up."""
    xet_failed: bool = False

    def __post_init__(self) -> None:
        self.cache = RepoCache(self.hub.cache_dir, self.file.repo)
        self.done = self.cache.received(self.file.sha256 or "")

    def run(self) -> Path:
        failures = 0
        while True:
            before = self.done
            try:
                return self._attempt()
            except HubError as error:
                self.stop.check()
                failures = 1 if self.done > before else failures + 1
                if not error.transient or failures >= self.policy.attempts:
                    raise
                if isinstance(error, OfflineError) and not self.reached_hub:
                    raise
                wait = self.policy.wait(failures, error.retry_after)
                count = f"attempt {failures + 1} of {self.policy.attempts} in {wait:.0f} s"
                self._report("retrying", f"{error} ({count})")
                self.stop.sleep(wait)

    def _attempt(self) -> Path:
        self._report("connecting")
        file = self.file
        ask = partial(self.hub.metadata, file.repo, file.path, file.commit)
        with closing(_unless_stopped(self.stop, lambda: [ask()])) as answers:
            metadata = next(filter(None, answers))
        if file.sha256 not in (None, metadata.etag):
            raise HubError(
                f"{file.name} has changed on the Hub (sha256 {metadata.etag[:12]}..., not "
                f"{file.sha256[:12]}...): nothing was downloaded."
            )
        self.reached_hub = True
        path, cache, etag = file.path, self.cache, metadata.etag
        pointer, blob = cache.pointer(metadata.commit, path), cache.blob(etag)
        blob.parent.mkdir(parents=True, exist_ok=True)
        self._discard_other_versions(etag)
        with self._lock(etag):
            present = pointer if pointer.exists() else blob
            if present.exists() and present.stat().st_size != metadata.size:
                # Another program left an incomplete file: only its size shows it.
                self._report("connecting", f"{path} here is damaged; downloading it again.")
                cache.delete(present)
            if not pointer.exists() and not blob.exists():
                self._receive(metadata)
                self._check(metadata)
                cache.partial(etag).replace(blob)
                cache.discard_partial(etag)
            self.done = metadata.size
            return cache.link(etag, metadata.commit, path, file.revision)

    def _receive(self, metadata: FileMetadata) -> None:
        """Append what is missing to the partial file."""
        etag, size, folder = metadata.etag, metadata.size, self.cache.folder
        self.cache.write_record(etag, self.file.path, self.file.revision, size)
        with FileIO(self.cache.partial(etag), "ab") as part:
            if part.tell() > size:
                part.truncate(size)
            start = self.done = min(part.tell(), size)
            if (lacking := size - start - free_bytes(folder)) > 0:
                raise disk_full(self.file.name, lacking, folder)
            if start < size:
                read = _over_xet if self._takes_xet(metadata) else _over_http
                try:
                    self._append(part, size, partial(read, self.hub, metadata, self.file, start))
                except HubError:
                    self.xet_failed = read is _over_xet and self.done == start
                    raise
            os.fsync(part.fileno())

    def _append(self, part: FileIO, size: int, source: Callable[[], Iterator[bytes]]) -> None:
        name, note = self.file.name, ""
        with closing(_unless_stopped(self.stop, source)) as pieces:
            for piece in pieces:
                if piece is not None:
                    if self.done + len(piece) > size:
                        raise HubError(f"{name} is longer than the Hub says.", transient=True)
                    rest = memoryview(piece)
                    while rest:
                        rest = rest[part.write(rest) :]
                    self.done += len(piece)
                    note = "" if piece else "it is sent from its start again"
                self._report("downloading", note)
        if self.done < size:
            raise HubError(f"{name} ended early: try again to resume.", transient=True)

    def _takes_xet(self, metadata: FileMetadata) -> bool:
        """Whether the bytes come from Xet storage, for which hf_xet opens many connections."""
        is_for_http = metadata.size <= constants.MAX_HTTP_DOWNLOAD_SIZE
        if metadata.xet is None or (self.xet_failed and is_for_http):
            return False
        has_xet = find_spec("hf_xet") is not None and not constants.HF_HUB_DISABLE_XET
        if not has_xet and not is_for_http:
            raise HubError(
                f"{self.file.name} is larger than what the Hub gives over HTTP: hf_xet can fetch "
                "it. Install it with `pip install hf_xet`, and unset HF_HUB_DISABLE_XET."
            )
        return has_xet

    def _check(self, metadata: FileMetadata) -> None:
        """Raise HubError, and delete the partial file, if its hash is not the etag."""
        name, etag = self.file.name, metadata.etag
        # The hash of a large file is its SHA-256, that of a small one git's.
        is_in_git = len(etag) == 40
        head = b"blob %d\0" % metadata.size if is_in_git else b""
        hasher = hashlib.new("sha1" if is_in_git else "sha256", head, usedforsecurity=False)
        with self.cache.partial(etag).open("rb") as file:
            while data := file.read(_HASHED_AT_ONCE):
                self.stop.check()
                self._report("checking", "checking the download")
                hasher.update(data)
        if hasher.hexdigest() == etag:
            return
        self.cache.discard_partial(etag)
        self.done = 0
        again, self.was_damaged = not self.was_damaged, True
        advice = (
            "downloading it again" if again else "a proxy or the network changes it; try another"
        )
        raise HubError(
            f"{name} arrived damaged ({hasher.hexdigest()[:12]}..., the Hub says {etag[:12]}...): "
            f"{advice}.",
            transient=again,
            retry_after=0.0,
        )

    def _discard_other_versions(self, etag: str) -> None:
        """Delete partial files of versions of this file that the Hub has replaced."""
        for part, other in self.cache.unfinished().items():
            other_etag = part.name.partition(".")[0]
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
                self.done = self.cache.received(etag)
                self._report("waiting", "another program is downloading this file")

    def _report(self, state: FileState, note: str = "") -> None:
        self.on_progress(FileSnapshot(self.file, state, self.done, note))


def _over_http(hub: Hub, metadata: FileMetadata, file: RemoteFile, start: int) -> Iterator[bytes]:
    """The bytes of a file from `start` on; an empty piece for one that was sent in vain, because
    the server ignores ranges. Raises HubError, also for the answer of something else."""
    with hub.stream(metadata.location, file.name, start) as response:
        skipped, size, headers = start, str(metadata.size), response.headers
        if response.status_code == 206:
            match = _RANGE.fullmatch(headers.get("Content-Range", ""))
            if match is None or match[1] != str(start) or match[2] not in ("*", size):
                raise HubError(f"The Hub sent the wrong part of {file.name}.", transient=True)
            skipped = 0
        elif headers.get("Content-Length", size) != size:
            raise HubError(f"{file.name} came with another size than the Hub says.", transient=True)
        elif "text/html" in headers.get("Content-Type", ""):
            raise HubError(
                f"A page came in place of {file.name}: check the proxy, or log in to the network "
                "you are on.",
                transient=True,
            )
        for piece in response.iter_bytes():
            yield piece[skipped:]
            skipped = max(skipped - len(piece), 0)


def _over_xet(hub: Hub, metadata: FileMetadata, file: RemoteFile, start: int) -> Iterator[bytes]:
    """The bytes of a file from `start` on, from Xet storage. Raises HubError.

    Not by huggingface_hub, which starts such a download over each time.
    """
    from hf_xet import XetConfig, XetFileInfo, XetSession  # noqa: PLC0415 - not for all machines

    xet = metadata.xet
    assert xet is not None
    config = {
        "client.connect_timeout": timedelta(seconds=hub.connect_s),
        "client.read_timeout": timedelta(seconds=hub.read_s),
        # Longer failures are retried by the download, which shows them to the user.
        "client.retry_max_attempts": 2,
        "client.retry_base_delay": timedelta(seconds=0.5),
        "reconstruction.download_buffer_size": _XET_BUFFER,
        "reconstruction.download_buffer_limit": _XET_BUFFER,
        "telemetry.enabled": False,
    }
    try:
        with XetSession(XetConfig().with_config(config)).new_download_stream_group(
            token_refresh_url=xet.refresh_route,
            token_refresh_headers=hub.request_headers(xet.refresh_route),
        ) as group:
            yield from group.download_stream(XetFileInfo(xet.file_hash, metadata.size), start=start)
    except (OSError, RuntimeError, ValueError) as error:
        raise HubError(
            f"The Hub's storage failed on {file.name} (hf_xet: {error}): try again later to "
            "resume.",
            transient=True,
        ) from error


def _unless_stopped(
    stop: StopSignal, ask: Callable[[], Iterable[Item]]
) -> Generator[Item | None, None, None]:
    """What `ask` gives, and None after each _STEP_S in which nothing came.

    A thread of its own waits for the network, where nothing can wake it: it is left behind at the
    end and ends with its next item or time-out. Raises StoppedError, and what `ask` raises.
    """
    arrived: Queue[Item | BaseException] = Queue(_WAITING)
    is_left = threading.Event()

    def wait_for_items() -> None:
        ended: BaseException = StopIteration()
        try:
            for item in ask():
                arrived.put(item)
                if is_left.is_set():
                    return
        except BaseException as error:  # raised below; hf_xet has its own kind
            ended = error
        arrived.put(ended)

    threading.Thread(target=wait_for_items, daemon=True).start()
    try:
        while True:
            found: Item | BaseException | None = None
            with suppress(Empty):
                found = arrived.get(timeout=_STEP_S)
            stop.check()
            if isinstance(found, StopIteration):
                return
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        is_left.set()
        while not arrived.empty():
            arrived.get()

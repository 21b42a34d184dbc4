"""Fetches the missing bytes of one file, over several HTTP connections or from Xet storage.

Each connection fetches one missing range at a time. A connection that breaks after it received some
bytes fetches another range; what it received stays. A connection that breaks without receiving any
ends, and its range is left to the others. The transfer fails when no connection is left.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from eaglechat.hub.downloads.client import FileMetadata, Hub
from eaglechat.hub.errors import HubError
from eaglechat.hub.local.partial_file import PartialFile

CONNECTIONS = 8
_STEP_S = 0.1
_JOIN_S = 0.5
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class StoppedError(Exception):
    """The download was stopped; the bytes received stay."""


class StopSignal:
    """Stops one download from any thread, even while it waits for the network."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._connections: set[socket.socket] = set()

    def stop(self) -> None:
        self._stopped.set()
        self.disconnect()

    def disconnect(self) -> None:
        """Shut down all connections: threads that read from one get an error."""
        for connection in list(self._connections):
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
        """While the context is open, `stop` shuts down the response's connection."""
        connection = response.extensions["network_stream"].get_extra_info("socket")
        self._connections.add(connection)
        try:
            self.check()
            yield
        finally:
            self._connections.discard(connection)


class Transfer:
    """One attempt to fetch what is missing of a file, over HTTP from one address."""

    connections = CONNECTIONS

    def __init__(
        self, hub: Hub, metadata: FileMetadata, name: str, partial: PartialFile, stop: StopSignal
    ) -> None:
        self._hub, self._metadata, self._name = hub, metadata, name
        self._partial, self._stop = partial, stop
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._taken: set[int] = set()
        """The ends of the ranges that a connection is fetching."""
        self._errors: list[Exception] = []
        self._ended = False
        self._etag: str | None = None
        self.supports_ranges = True
        """False once the server sent the whole file in answer to a request for a range."""

    def run(self, on_step: Callable[[], bool]) -> None:
        """Fetch until nothing is missing.

        `on_step` is called when bytes arrived and at least every _STEP_S; while it returns True, it
        is called again at once. Raises HubError, StoppedError, OSError, and what `on_step` raises.
        """
        count = min(self.connections, len(self._partial.missing_ranges()))
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads) and not self._ended:
                self._stop.check()
                if not on_step():
                    self._changed.wait(_STEP_S)
                    self._changed.clear()
        finally:
            self._ended = True
            self._disconnect()
            # Not for ever: a thread that still waits for a response does not write what comes.
            deadline = time.monotonic() + _JOIN_S
            for thread in threads:
                thread.join(max(deadline - time.monotonic(), 0.0))
        self._stop.check()
        if self._partial.received < self._metadata.size:
            # A server that ignores ranges leaves no connection to go on after one that broke.
            broke = self._error("ended early: try again to resume")
            raise min(self._errors, key=_is_transient, default=broke)

    def _disconnect(self) -> None:
        """Wake the threads that wait for bytes."""
        self._stop.disconnect()

    def _work(self) -> None:
        try:
            while (missing := self._take()) is not None:
                try:
                    self._fetch(*missing)
                except HubError as error:
                    self._check_wanted()
                    received_nothing = missing in self._partial.missing_ranges()
                    if not error.transient or received_nothing:
                        raise
                finally:
                    self._taken.discard(missing[1])
        except StoppedError:
            pass
        except Exception as error:  # raised by `run`, in the thread of its caller
            with self._lock:
                if not self._ended:
                    self._errors.append(error)
                self._ended |= not _is_transient(error)
        finally:
            self._changed.set()

    def _take(self) -> tuple[int, int] | None:
        with self._lock:
            if self._ended or not self.supports_ranges:
                return None
            for start, end in self._partial.missing_ranges():
                if end not in self._taken:
                    self._taken.add(end)
                    return start, end
        return None

    def _fetch(self, start: int, end: int) -> None:
        size = self._metadata.size
        last = None if end == size else end - 1
        with self._hub.stream(self._metadata.location, self._name, start, last) as response:
            etag = response.headers.get("ETag")
            with self._lock:
                self._etag = self._etag or etag
            if etag and etag != self._etag:
                # All responses of one transfer must be of the same version of the file.
                raise self._error("changed on the Hub during the download")
            if response.status_code == 200:
                start, end = self._begin_whole_file(response, start, end), size
            else:
                match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
                if match is None or int(match[1]) != start or match[2] not in ("*", str(size)):
                    raise HubError(f"The Hub sent the wrong part of {self._name}.", transient=True)
            with self._stop.interrupts(response):
                self._check_wanted()
                for chunk in response.iter_bytes():
                    self._check_wanted()
                    if start + len(chunk) > end:
                        raise self._error("is longer than the Hub says")
                    self._partial.write(start, chunk)
                    start += len(chunk)
                    self._changed.set()
        self._check_wanted()
        if start < end:
            raise self._error("ended early: try again to resume")

    def _begin_whole_file(self, response: Any, start: int, end: int) -> int:
        """The server sends the whole file: only one connection takes it. Returns 0, its start."""
        size = self._metadata.size
        if response.headers.get("Content-Length", str(size)) != str(size):
            raise self._error("has another size than the Hub says")
        if (start, end) != (0, size):
            with self._lock:
                if not self.supports_ranges:
                    raise StoppedError
                self.supports_ranges = False
        return 0

    def _check_wanted(self) -> None:
        self._stop.check()
        if self._ended:
            raise StoppedError

    def _error(self, what: str) -> HubError:
        return HubError(f"{self._name} {what}.", transient=True)


def _is_transient(error: Exception) -> bool:
    return isinstance(error, HubError) and error.transient


class XetTransfer(Transfer):
    """One attempt to fetch a file from the first missing byte to its end, from Xet storage.

    It uses hf_xet directly, because huggingface_hub starts such a download over each time, and a
    stream of hf_xet can start at any byte. hf_xet uses several connections itself.
    """

    connections = 1

    def __init__(
        self, hub: Hub, metadata: FileMetadata, name: str, partial: PartialFile, stop: StopSignal
    ) -> None:
        """Raises HubError if hf_xet is not installed."""
        super().__init__(hub, metadata, name, partial, stop)
        try:
            from hf_xet import XetConfig, XetSession  # noqa: PLC0415 - not built for all machines
        except ImportError as error:
            raise HubError(
                f"{name} is larger than what the Hub gives over HTTP: install hf_xet, which "
                "can fetch it, with `pip install hf_xet`."
            ) from error
        self._session = XetSession(
            XetConfig().with_config(
                {
                    "client.connect_timeout": timedelta(seconds=hub.timeouts.connect),
                    "client.read_timeout": timedelta(seconds=hub.timeouts.read),
                    # Longer failures are retried by the download, which shows them to the user.
                    "client.retry_max_attempts": 2,
                    "client.retry_base_delay": timedelta(seconds=0.5),
                    "telemetry.enabled": False,
                }
            )
        )

    def _disconnect(self) -> None:
        # The only call that also wakes a thread that waits for the network.
        self._session.sigint_abort()

    def _fetch(self, start: int, end: int) -> None:
        """Fetch from `start` to the end of the file; PartialFile skips what was received before."""
        for data in self._stream(start):
            self._check_wanted()
            self._partial.write(start, data)
            start += len(data)
            self._changed.set()
        self._check_wanted()
        if start < self._metadata.size:
            raise self._error("ended early: try again to resume")

    def _stream(self, start: int) -> Iterator[bytes]:
        from hf_xet import XetFileInfo  # noqa: PLC0415

        xet = self._metadata.xet
        assert xet is not None
        try:
            group = self._session.new_download_stream_group(
                token_refresh_url=xet.refresh_route,
                token_refresh_headers=self._hub.request_headers(xet.refresh_route),
            )
            info = XetFileInfo(xet.file_hash, self._metadata.size)
            yield from group.download_stream(info, start=start)
        except FileNotFoundError as error:
            raise HubError(f"{self._name} is not where the Hub says it is.") from error
        except (OSError, RuntimeError, ValueError) as error:
            raise HubError(
                f"The Hub's storage failed on {self._name} (hf_xet: {error}): try again later to "
                "resume.",
                transient=True,
            ) from error

"""The missing bytes of one file, over several connections at a time.

Each takes the first block that nobody fetches, and the next one when it broke after some bytes of
it, which stay. One that fails without any leaves its block to the others; the transfer fails when
none is left.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from eaglechat.hub.downloads.client import FileMetadata, Hub
from eaglechat.hub.downloads.stop import StoppedError, StopSignal
from eaglechat.hub.errors import HubError
from eaglechat.hub.local.parts import Part

CONNECTIONS = 8
_STEP_S = 0.1
_FAREWELL_S = 0.5
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class Transfer:
    """One attempt from one address."""

    connections = CONNECTIONS

    def __init__(
        self, hub: Hub, found: FileMetadata, name: str, part: Part, stop: StopSignal
    ) -> None:
        self._hub, self._found, self._name = hub, found, name
        self._part, self._stop = part, stop
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._taken: set[int] = set()
        """Blocks somebody fetches, by their ends."""
        self._errors: list[Exception] = []
        self._ended = False
        self._tag: str | None = None
        self.resumes = True
        """False once the server sent the file from its start where a part was asked for."""

    def run(self, on_step: Callable[[], bool]) -> None:
        """Fetch until nothing is missing.

        `on_step` is called when something arrived, and a few times a second; while it returns
        True, at once again. Raises HubError, StoppedError, OSError, and what `on_step` raises.
        """
        count = min(self.connections, len(self._part.missing()))
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
            self._hang_up()
            self._leave(threads)
        self._stop.check()
        if self._part.done < self._found.size:
            raise min(self._errors, key=_may_pass)

    def _hang_up(self) -> None:
        """End the wait of whoever waits for bytes."""
        self._stop.disconnect()

    def _leave(self, threads: Sequence[threading.Thread]) -> None:
        """One that still waits for an answer to begin writes nothing when it comes."""
        deadline = time.monotonic() + _FAREWELL_S
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))

    def _work(self) -> None:
        try:
            while (rest := self._take()) is not None:
                try:
                    self._fetch(*rest)
                except HubError as error:
                    self._check_wanted()
                    if not error.transient or rest in self._part.missing():
                        raise
                finally:
                    self._taken.discard(rest[1])
        except StoppedError:
            pass
        except Exception as error:  # raised by `run`, in the thread that asked
            with self._lock:
                if not self._ended:
                    self._errors.append(error)
                self._ended |= not _may_pass(error)
        finally:
            self._changed.set()

    def _take(self) -> tuple[int, int] | None:
        with self._lock:
            if self._ended or not self.resumes:
                return None
            for start, end in self._part.missing():
                if end not in self._taken:
                    self._taken.add(end)
                    return start, end
        return None

    def _fetch(self, start: int, end: int) -> None:
        size = self._found.size
        last = None if end == size else end - 1
        with self._hub.stream(self._found.location, self._name, start, last) as response:
            self._check_same(response)
            if response.status_code == 200:
                start, end = self._begin_of_all(response, start, end), size
            else:
                self._check_range(response, start)
            with self._stop.interrupts(response):
                self._check_wanted()
                for chunk in response.iter_bytes():
                    self._check_wanted()
                    if start + len(chunk) > end:
                        raise self._fault("is longer than the Hub says")
                    self._part.write(start, chunk)
                    start += len(chunk)
                    self._changed.set()
        self._check_wanted()
        if start < end:
            raise self._fault("ended early: try again to resume")

    def _begin_of_all(self, response: Any, start: int, end: int) -> int:
        """The whole comes: one connection takes it. Returns 0, where its first byte belongs."""
        size = self._found.size
        if response.headers.get("Content-Length", str(size)) != str(size):
            raise self._fault("has another size than the Hub says")
        if (start, end) != (0, size):
            with self._lock:
                if not self.resumes:
                    raise StoppedError
                self.resumes = False
        return 0

    def _check_range(self, response: Any, start: int) -> None:
        match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        totals = ("*", str(self._found.size))
        if match is None or int(match[1]) != start or match[2] not in totals:
            raise HubError(f"The Hub sent the wrong part of {self._name}.", transient=True)

    def _check_same(self, response: Any) -> None:
        """What comes from one address is one file, as long as its server says so."""
        tag = response.headers.get("ETag")
        with self._lock:
            self._tag = self._tag or tag
        if tag and tag != self._tag:
            raise self._fault("changed on the Hub during the download")

    def _check_wanted(self) -> None:
        self._stop.check()
        if self._ended:
            raise StoppedError

    def _fault(self, what: str) -> HubError:
        return HubError(f"{self._name} {what}.", transient=True)


def _may_pass(error: Exception) -> bool:
    return isinstance(error, HubError) and error.transient

"""The client's end of the engine process: starts it, writes requests, collects events.

Nothing here blocks the caller for long: one thread reads the pipe into a queue that the user
interface drains at its own rate, another writes what the interface asks.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from eaglechat.wire.protocol import (
    AnyEvent,
    AnyRequest,
    ProtocolError,
    Shutdown,
    decode_event,
    encode,
)

LOG_TAIL_LINES = 8


@dataclass(frozen=True)
class Died:
    """The engine process is gone without being asked to; `log_tail` is what it said last."""

    exit_status: int | None
    log_tail: tuple[str, ...]


class EngineLink(Protocol):
    """What a user interface needs of an engine; tests script one."""

    def start(self) -> None:
        """Start the engine. Raises EngineStartError."""

    def send(self, request: AnyRequest) -> bool:
        """Send a request; False if the engine is gone."""

    def drain(self) -> list[AnyEvent | Died]:
        """The events since the last call, in order, without waiting."""

    def close(self, patience_s: float = 1.0) -> None:
        """End the engine: ask, wait `patience_s` seconds, kill."""


class EngineStartError(RuntimeError):
    """The engine's command line could not be started."""


class EngineProcess:
    """An engine behind the pipes of a child process, started by any command line."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        """`log` receives the process' standard error: llama.cpp's own log."""
        self._command = list(command)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._events: deque[AnyEvent | Died] = deque()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def start(self) -> None:
        """Start the process. Raises EngineStartError."""
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            self._log.write_bytes(b"")
            # Appending, because the reader below writes to the log too.
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
                )
        except OSError as error:
            command = " ".join(self._command)
            raise EngineStartError(f"cannot start the engine with “{command}”: {error}") from error
        # Queues of its own: what an engine closed before still says is nobody's news.
        self._lines.put(None)
        self._events, self._lines = deque(), queue.SimpleQueue()
        for work, waiting in ((self._read, self._events), (self._write, self._lines)):
            arguments = (self._process, waiting)
            threading.Thread(target=work, args=arguments, name="engine-pipe", daemon=True).start()

    def send(self, request: AnyRequest) -> bool:
        if self._process is None or self._process.poll() is not None:
            return False
        self._lines.put(encode(request))
        return True

    def drain(self) -> list[AnyEvent | Died]:
        waiting, events = self._events, []
        while waiting:
            events.append(waiting.popleft())
        return events

    def close(self, patience_s: float = 1.0) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        self._lines.put(encode(Shutdown()))
        self._lines.put(None)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _read(self, process: subprocess.Popen[bytes], events: deque[AnyEvent | Died]) -> None:
        stdout = process.stdout
        assert stdout is not None
        for line in stdout:
            try:
                events.append(decode_event(line))
            except ProtocolError:
                # A remote shell's greeting, say; the log keeps it for whoever looks.
                with self._log.open("ab") as log:
                    log.write(b"not an engine message: " + line)
        exit_status = process.wait()
        if process is self._process:
            events.append(Died(exit_status, self.log_tail()))

    @staticmethod
    def _write(process: subprocess.Popen[bytes], lines: queue.SimpleQueue[bytes | None]) -> None:
        """Write what waits, up to a None; an engine that does not read holds up nobody else."""
        assert process.stdin is not None
        with contextlib.suppress(OSError, ValueError), process.stdin as stdin:
            while (line := lines.get()) is not None:
                stdin.write(line)
                stdin.flush()

    def log_tail(self) -> tuple[str, ...]:
        """The last lines of the engine's log."""
        try:
            text = self._log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ()
        return tuple(text.splitlines()[-LOG_TAIL_LINES:])

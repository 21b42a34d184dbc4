"""The link to an engine in a child process, which any command line may start, such as one with ssh.

The caller never waits for the pipes: one thread reads the engine's events, another writes requests.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from eaglechat import paths
from eaglechat.links.base import Link
from eaglechat.links.crashes import crash
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import AnyRequest, Error, ProtocolError, Shutdown, decode_event, encode
from eaglechat.wire.worker import Died, Say

_LOG_TAIL_LINES = 8
_LOG_TAIL_BYTES = 32_768
_LOGGED_BYTES = 500
_LONGEST_LINE = 2**26
_RPC_CRASHED = "Remote RPC server crashed"
_RPC_GONE = "the engine stopped because an RPC server of engine.rpc_servers went away"
SILENT_S = 5.0
"""Seconds that a process has to end once it has closed its output."""


@dataclass(frozen=True)
class _Running:
    """A process, its log, and the lines that wait to be written to it; None ends them."""

    process: subprocess.Popen[bytes]
    log: BinaryIO
    lines: queue.SimpleQueue[bytes | None]


class ProcessLink(Link):
    def __init__(self, command: Sequence[str], log: Path | None) -> None:
        """`log` receives the process' standard error, where llama.cpp logs. None: a temporary file
        without a name, from which the tail is shown if the process dies."""
        super().__init__()
        self._command = list(command)
        self._log = log
        self._running: _Running | None = None

    def open_engine(self, say: Say) -> None:
        log = open_log(self._log)
        try:
            with _signals_ignored():
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
                )
        except (OSError, ValueError) as error:
            log.close()
            command = " ".join(self._command)
            raise EngineError(f"cannot start the engine with “{command}”: {error}") from error
        running = self._running = _Running(process, log, queue.SimpleQueue())
        for work in (lambda: _read(running, say), lambda: _write(running)):
            threading.Thread(target=work, name="engine-pipe", daemon=True).start()

    def hand_over(self, message: AnyRequest) -> None:
        assert self._running is not None
        self._running.lines.put(encode(message))

    def log_tail(self) -> tuple[str, ...]:
        running = self._running
        return super().log_tail() if running is None or running.log.closed else tail(running.log)

    def end_engine(self, patience_s: float) -> None:
        running, self._running = self._running, None
        assert running is not None
        running.lines.put(encode(Shutdown()))
        running.lines.put(None)
        wait_or_kill(running.process, patience_s)


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """A child that is started meanwhile ignores SIGINT and SIGTERM, which the terminal and
    `timeout` send to client and engine alike: the client decides what happens."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler or signal.SIG_DFL)


def open_log(path: Path | None) -> BinaryIO:
    """An empty log. If it cannot be written: a temporary file without a name, or else /dev/null.

    A new file replaces the old one, so another eaglechat goes on writing to its own.
    """
    if path is not None:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Windows refuses this while another eaglechat has the file open.
            path.unlink(missing_ok=True)
            # A file that did not exist, and that only the user may read. For appending: `_read`
            # writes to the log too.
            new = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
            return os.fdopen(new, "a+b", buffering=0)
    with contextlib.suppress(OSError):
        return tempfile.TemporaryFile("a+b", buffering=0)
    return Path(os.devnull).open("a+b", buffering=0)


def _read(running: _Running, say: Say) -> None:
    """Say the events that the process writes, and at its end that it died."""
    exit_status = None
    try:
        assert running.process.stdout is not None
        with running.process.stdout as stdout:
            while line := stdout.readline(_LONGEST_LINE):
                try:
                    say(decode_event(line))
                except ProtocolError as error:
                    if error.request_id is not None:
                        why = f"the engine's answer is not understood: {error}"
                        say(Error(id=error.request_id, code="protocol", message=why))
                        continue
                    # Such as the greeting of a remote shell: it goes to the log.
                    with contextlib.suppress(OSError):
                        running.log.write(b"not an engine message: " + line[:_LOGGED_BYTES])
        exit_status = wait_or_kill(running.process, SILENT_S)
    finally:
        running.lines.put(None)
        last = tail(running.log)
        why = _RPC_GONE if any(_RPC_CRASHED in line for line in last) else ""
        kept = _keep(running.log) if crash(exit_status) else ""
        say(Died(None if why else exit_status, last, why, kept))
        running.log.close()


def _keep(log: BinaryIO) -> str:
    """Copy the log of a crash, which the log of the next engine replaces. Returns the path of the
    copy; empty if it cannot be written."""
    kept = paths.crash_log()
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        log.seek(0)
        with kept.open("wb") as copy:
            shutil.copyfileobj(log, copy)
        return str(kept)
    return ""


def _write(running: _Running) -> None:
    """Write the waiting lines up to a None. An engine that reads nothing blocks this thread
    only."""
    assert running.process.stdin is not None
    with contextlib.suppress(OSError, ValueError), running.process.stdin as stdin:
        while (line := running.lines.get()) is not None:
            stdin.write(line)
            stdin.flush()


def wait_or_kill(process: subprocess.Popen[bytes], patience_s: float) -> int:
    """Wait for a process to end and kill it after `patience_s` seconds; returns its exit status."""
    try:
        return process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def tail(log: BinaryIO, n_lines: int = _LOG_TAIL_LINES, start: int = 0) -> tuple[str, ...]:
    """The last lines of a log, none from before its byte `start`; none of a log that is closed."""
    try:
        log.seek(max(start, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
        text = log.read(_LOG_TAIL_BYTES).decode("utf-8", errors="replace")
    except (OSError, ValueError):
        return ()
    return tuple(text.splitlines()[-n_lines:])

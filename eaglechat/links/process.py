"""An engine behind the pipes of a child process, started by any command line.

Nothing here blocks the caller for long: one thread reads what the engine says, another writes what
it is asked.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from eaglechat.links.base import Died, EngineStartError, Link
from eaglechat.wire.lines import ProtocolError, decode_event, encode
from eaglechat.wire.protocol import AnyEvent, AnyRequest, Error, Shutdown

LOG_TAIL_LINES = 8
_LOG_TAIL_BYTES = 32_768
_LOGGED_BYTES = 500
_LONGEST_LINE = 2**26
_RPC_GONE = "Remote RPC server crashed"
_WAS_KILLED = " was killed (signal 9)"
"""The last word of an engine whose program was."""
_SILENT_S = 5.0
"""A process that closed its output has this long to end."""


@dataclass(frozen=True)
class _Running:
    """A process, its log, and the lines it is still to read."""

    process: subprocess.Popen[bytes]
    log: BinaryIO
    lines: queue.SimpleQueue[bytes | None]


class ProcessLink(Link):
    """The link to it."""

    def __init__(self, command: Sequence[str], log: Path | None) -> None:
        """`log` receives the process' standard error, llama.cpp's own log; None: a file without a
        name, for what is said if the process dies."""
        super().__init__()
        self._command = list(command)
        self._log = log
        self._running: _Running | None = None

    def open_engine(self, say: Callable[[AnyEvent | Died], None]) -> None:
        log = _open_log(self._log)
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
            raise EngineStartError(f"cannot start the engine with “{command}”: {error}") from error
        running = self._running = _Running(process, log, queue.SimpleQueue())
        for work in (lambda: _read(running, say), lambda: _write(running)):
            threading.Thread(target=work, name="engine-pipe", daemon=True).start()

    def hand_over(self, message: AnyRequest) -> None:
        assert self._running is not None
        self._running.lines.put(encode(message))

    def log_tail(self) -> tuple[str, ...]:
        running = self._running
        return super().log_tail() if running is None or running.log.closed else _tail(running.log)

    def end_engine(self, patience_s: float) -> None:
        running, self._running = self._running, None
        assert running is not None
        running.lines.put(encode(Shutdown()))
        running.lines.put(None)
        _wait(running.process, patience_s)


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """What is started here ignores what the terminal or `timeout` sends to both of them: the client
    decides."""
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


def _open_log(path: Path | None) -> BinaryIO:
    """The log, empty; where it cannot be written, a file without a name, or none at all.

    The file is a new one that takes the name: another eaglechat goes on writing its own.
    """
    if path is not None:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
            os.close(handle)
            try:
                # Windows does not, while another eaglechat has the file open.
                Path(name).replace(path)
            except OSError:
                Path(name).unlink()
                raise
            # Appending, because the reader below writes to the log too.
            return path.open("a+b", buffering=0)
    with contextlib.suppress(OSError):
        return tempfile.TemporaryFile("a+b", buffering=0)
    return Path(os.devnull).open("a+b", buffering=0)


def _read(running: _Running, say: Callable[[AnyEvent | Died], None]) -> None:
    """Say what the process writes, and its death at the end."""
    exit_status = None
    try:
        assert running.process.stdout is not None
        with running.process.stdout as stdout:
            while line := stdout.readline(_LONGEST_LINE):
                event = _event(line)
                if event is not None:
                    say(event)
                    continue
                # A remote shell's greeting, say; the log keeps it for whoever looks.
                with contextlib.suppress(OSError):
                    running.log.write(b"not an engine message: " + line[:_LOGGED_BYTES])
        exit_status = _wait(running.process, _SILENT_S)
    finally:
        running.lines.put(None)
        tail = _tail(running.log)
        say(Died(exit_status, tail, _known_cause(tail)))
        running.log.close()


def _known_cause(log_tail: Sequence[str]) -> str:
    """Why the engine stopped, where its last words are llama.cpp's for something else."""
    if any(_RPC_GONE in line for line in log_tail):
        return "the engine stopped because an RPC server of engine.rpc_servers went away"
    if log_tail and _WAS_KILLED in log_tail[-1]:
        return f"the engine stopped because {log_tail[-1]}"
    return ""


def _event(line: bytes) -> AnyEvent | None:
    """The event in a line; the failure of a request whose event is not understood; else None."""
    try:
        return decode_event(line)
    except ProtocolError as error:
        if error.request_id is None:
            return None
        message = f"the engine's answer is not understood: {error}"
        return Error(id=error.request_id, code="protocol", message=message)


def _write(running: _Running) -> None:
    """Write what waits, up to a None; an engine that does not read holds up nobody else."""
    assert running.process.stdin is not None
    with contextlib.suppress(OSError, ValueError), running.process.stdin as stdin:
        while (line := running.lines.get()) is not None:
            stdin.write(line)
            stdin.flush()


def _wait(process: subprocess.Popen[bytes], patience_s: float) -> int:
    """The exit status of a process that is ending, by force after `patience_s` seconds."""
    try:
        return process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _tail(log: BinaryIO) -> tuple[str, ...]:
    """The last lines of a log."""
    try:
        log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
        text = log.read(_LOG_TAIL_BYTES).decode("utf-8", errors="replace")
    except (OSError, ValueError):
        # ValueError: the reader of the process has closed it meanwhile.
        return ()
    return tuple(text.splitlines()[-LOG_TAIL_LINES:])

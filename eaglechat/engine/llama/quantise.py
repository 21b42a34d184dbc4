"""Quantises a GGUF with llama.cpp in a process of its own.

The native call cannot be stopped, and a failed assertion in it ends its process. A child process
can be killed, and its crash is an error message here. `python -m eaglechat.engine.llama.quantise
SOURCE OUT FILE_TYPE` is that child.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from eaglechat.wire.errors import EngineError

_POLL_S = 0.1
_LOG_TAIL_LINES = 4
_MAX_BUFFER_BYTES = 64 << 20
_TOTAL_LINE = re.compile(r"quant size\s*=\s*([\d.]+) MiB")
_NOT_WRITTEN = re.compile(r"ios(_base)?::clear")
"""In the message of a C++ library about a stream that could not be written."""


class QuantiseError(EngineError):
    """llama.cpp could not quantise a file; the message ends with the last lines of its log."""

    code = "quantise"


def quantise(
    source: Path, out: Path, file_type: int, on_progress: Callable[[int, int], None]
) -> None:
    """Write `source` to `out` quantised to `file_type` (general.file_type of GGUF).

    `on_progress` gets the bytes written and their total, several times a second. If it raises, the
    child is killed and the exception goes on. Raises QuantiseError.
    """
    command = [sys.executable, "-m", "eaglechat.engine.llama.quantise", str(source), str(out)]
    with subprocess.Popen(
        [*command, str(file_type)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as child:
        assert child.stderr is not None
        log = _Log(child.stderr)
        try:
            while log.is_open(_POLL_S):
                if log.total_bytes and out.exists():
                    written = out.stat().st_size
                    on_progress(min(written, log.total_bytes), log.total_bytes)
                else:
                    on_progress(0, 1)
        except BaseException:
            child.kill()
            raise
        status = child.wait()
    if status != 0 and _NOT_WRITTEN.search(log.tail):
        raise QuantiseError(
            f"llama.cpp could not write {out.name}: the disk of {out.parent} is full"
        )
    if status != 0:
        raise QuantiseError(
            f"llama.cpp could not quantise {source.name} (exit status {status}): {log.tail}"
        )


class _Log:
    """Reads the child's log for the size of the result, and keeps the last lines."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.total_bytes = 0
        self._tail: deque[str] = deque(maxlen=_LOG_TAIL_LINES)
        self._thread = threading.Thread(target=self._follow, args=(lines,), daemon=True)
        self._thread.start()

    def _follow(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._tail.append(line.strip())
            if match := _TOTAL_LINE.search(line):
                self.total_bytes = round(float(match[1]) * (1 << 20))

    def is_open(self, wait_s: float) -> bool:
        self._thread.join(wait_s)
        return self._thread.is_alive()

    @property
    def tail(self) -> str:
        return " | ".join(line for line in self._tail if line) or "its log is empty"


def _main(source: str, out: str, file_type: str) -> int:
    from eaglechat.engine.llama import backend, bindings  # noqa: PLC0415 - the parent needs no llama.cpp

    threading.Thread(target=_end_with_parent, daemon=True).start()
    backend.start_backend(backend.LOG_INFO)
    for dry_run in (True, False):  # the dry run only logs the size
        if not bindings.quantise(source, out, int(file_type), _MAX_BUFFER_BYTES, dry_run=dry_run):
            return 1
    return 0


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))

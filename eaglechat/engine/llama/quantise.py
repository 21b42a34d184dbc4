"""Quantises a GGUF with llama.cpp in a process of its own.

The native call cannot be stopped, and a failed assertion in it ends its process. A child process
can be killed, and its crash is an error message here. That child runs this module, with the
arguments SOURCE OUT FILE_TYPE.
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

from eaglechat import own_python
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
    with subprocess.Popen(
        own_python.command(
            "eaglechat.engine.llama.quantise", str(source), str(out), str(file_type)
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as child:
        log: deque[str] = deque(maxlen=_LOG_TAIL_LINES)
        total_bytes = 0

        def follow(lines: Iterable[str]) -> None:
            nonlocal total_bytes
            for line in lines:
                log.append(line.strip())
                if match := _TOTAL_LINE.search(line):
                    total_bytes = round(float(match[1]) * (1 << 20))

        reader = threading.Thread(target=follow, args=(child.stderr,), daemon=True)
        reader.start()
        try:
            while reader.is_alive():
                reader.join(_POLL_S)
                if total_bytes and out.exists():
                    on_progress(min(out.stat().st_size, total_bytes), total_bytes)
                else:
                    on_progress(0, 1)
        except BaseException:
            child.kill()
            raise
        status = child.wait()
    tail = " | ".join(line for line in log if line) or "its log is empty"
    if status != 0 and _NOT_WRITTEN.search(tail):
        raise QuantiseError(
            f"llama.cpp could not write {out.name}: the disk of {out.parent} is full"
        )
    if status != 0:
        raise QuantiseError(
            f"llama.cpp could not quantise {source.name} (exit status {status}): {tail}"
        )


def _main(source: str, out: str, file_type: str) -> int:
    from eaglechat.engine.llama import backend, bindings  # noqa: PLC0415 - the parent needs no llama.cpp

    end_with_parent()
    backend.start_backend(backend.LOG_INFO)
    for dry_run in (True, False):  # the dry run only logs the size
        if not bindings.quantise(source, out, int(file_type), _MAX_BUFFER_BYTES, dry_run=dry_run):
            return 1
    return 0


def end_with_parent() -> None:
    """End this process when its parent is gone, which holds the other end of standard input."""

    def end() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))

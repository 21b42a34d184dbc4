"""Quantises a GGUF with llama.cpp in a process of its own, which runs this module with the
arguments SOURCE OUT FILE_TYPE."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from eaglechat.engine.apart import ApartError, end_with_parent, run_apart
from eaglechat.wire.errors import EngineError

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
    writing stops and the exception goes on. Raises QuantiseError.
    """

    def watch(log: str) -> None:
        total = _TOTAL_LINE.search(log)
        if total and out.exists():
            total_bytes = round(float(total[1]) * (1 << 20))
            on_progress(min(out.stat().st_size, total_bytes), total_bytes)
        else:
            on_progress(0, 1)

    try:
        run_apart(__name__, str(source), str(out), str(file_type), watch=watch)
    except ApartError as error:
        if _NOT_WRITTEN.search(str(error)):
            raise QuantiseError(
                f"llama.cpp could not write {out.name}: the disk of {out.parent} is full"
            ) from error
        raise QuantiseError(f"llama.cpp could not quantise {source.name}: {error}") from error


def _main(source: str, out: str, file_type: str) -> int:
    from eaglechat.engine.llama import backend, bindings  # noqa: PLC0415 - the parent needs no llama.cpp

    end_with_parent()
    backend.start_backend(backend.LOG_INFO)
    for dry_run in (True, False):  # the dry run only logs the size
        if not bindings.quantise(source, out, int(file_type), _MAX_BUFFER_BYTES, dry_run=dry_run):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))

"""Runs a module of this program in a process of its own: native work that nothing can stop and that
may end its process can be killed there, and its crash is an error here."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from eaglechat import own_python
from eaglechat.wire.errors import EngineError

_POLL_S = 0.1
_LOG_TAIL_LINES = 4


class ApartError(EngineError):
    """The process failed; the message ends with the last lines of its log."""


def run_apart(module: str, *arguments: str, watch: Callable[[str], None]) -> str:
    """What the module prints. It has to call `end_with_parent`.

    `watch` gets its log so far, from standard error, several times a second. If it raises, the
    process is killed and the exception goes on. Raises ApartError.
    """
    command, pipe = own_python.command(module, *arguments), subprocess.PIPE
    with TemporaryDirectory() as folder:
        # A pipe that is read at the end alone would be full before.
        printed, log = Path(folder, "printed"), Path(folder, "log")
        with (
            printed.open("wb") as out,
            log.open("wb") as err,
            subprocess.Popen(command, stdin=pipe, stdout=out, stderr=err) as child,
        ):
            try:
                while child.poll() is None:
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(_POLL_S)
                    watch(log.read_text(errors="replace"))
            except BaseException:
                child.kill()
                raise
        if child.returncode != 0:
            lines = log.read_text(errors="replace").strip().splitlines()[-_LOG_TAIL_LINES:]
            tail = " | ".join(lines) or "its log is empty"
            raise ApartError(f"exit status {child.returncode}: {tail}")
        return printed.read_text(encoding="utf-8")


def end_with_parent() -> None:
    """End this process when its parent is gone, which holds the other end of standard input."""

    def end() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()

"""The engine process, which computes with llama.cpp itself.

A failed assertion inside llama.cpp kills this process and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from eaglechat.engine.llama import backend, left_out
from eaglechat.engine.process import pipes
from eaglechat.engine.process.job_loop import JobLoop
from eaglechat.wire.protocol import AnyEvent


def main() -> int:
    """Serve on this process' own pipes until they close."""
    # A debugger's report of a failed assertion would push the assertion out of the log's end.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    left_out.this_process_may_crash()
    return pipes.serve(_jobs)


def _jobs(say: Callable[[AnyEvent], None]) -> JobLoop:
    # The pipes are made: what it prints goes to the log.
    backend.start_backend(backend.LOG_INFO)
    return JobLoop(say)

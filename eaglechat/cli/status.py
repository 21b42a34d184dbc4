"""Exit statuses, and where diagnostics go."""

from __future__ import annotations

import sys

from eaglechat.wire.neutral import neutralise

OK, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


def complain(message: str) -> None:
    """Say on standard error what went wrong."""
    print(f"eaglechat: {neutralise(message)}", file=sys.stderr)


def reason(error: OSError) -> str:
    """What a system call says, with the file that it was about."""
    why = error.strerror or str(error)
    return f"{error.filename}: {why}" if error.filename is not None else why

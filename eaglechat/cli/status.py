"""Exit statuses, and where diagnostics go."""

from __future__ import annotations

import sys

OK, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


def complain(message: str) -> None:
    """Say on standard error what went wrong."""
    print(f"eaglechat: {message}", file=sys.stderr)

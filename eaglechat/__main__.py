"""The console script; `python -m eaglechat` is the same."""

from __future__ import annotations

import sys


def main() -> int:
    """Run a command; its exit status. An interrupt ends it quietly, also while the program is still
    being read, which takes a third of a second."""
    try:
        from eaglechat.cli import main as run  # noqa: PLC0415 - inside of what an interrupt may end

        return run()
    except KeyboardInterrupt:
        return 128 + 2


if __name__ == "__main__":
    sys.exit(main())

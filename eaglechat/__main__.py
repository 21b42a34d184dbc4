"""The console script; `python -m eaglechat` is the same."""

from __future__ import annotations

import sys

from eaglechat.own_python import forget_current_folder


def main() -> int:
    """Run a command and return its exit status.

    Importing the program takes a third of a second, in which SIGINT must end it quietly too.
    """
    try:
        forget_current_folder()
        from eaglechat.cli import main as run  # noqa: PLC0415 - Ctrl+C may come during this

        return run()
    except KeyboardInterrupt:
        return 128 + 2


if __name__ == "__main__":
    sys.exit(main())

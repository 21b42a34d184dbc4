"""Exit statuses, and the printing of errors."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from eaglechat.wire.errors import EngineError
from eaglechat.words.neutral import neutralise

OK, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


class CommandError(EngineError):
    """Why a command cannot do what it was asked to do."""


class WrongUsageError(CommandError):
    """What is wrong with the arguments."""

    status = WRONG_USAGE


def complain(message: str) -> None:
    """Print an error to standard error."""
    print(f"eaglechat: {neutralise(message)}", file=sys.stderr)


def report(problems: Iterable[object]) -> None:
    """Print what is wrong in the user's files."""
    for problem in problems:
        complain(str(problem))


def reason(error: OSError) -> str:
    """The message of an OSError, with the name of its file."""
    why = error.strerror or str(error)
    return f"{error.filename}: {why}" if error.filename is not None else why

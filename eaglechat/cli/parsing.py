"""The parser of the command line: it says what is wrong in one line, with the nearest option."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from eaglechat.cli.status import WRONG_USAGE, WrongUsageError, complain

_FLAG = re.compile(r"(?<!\S)--[a-z][a-z-]*")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Shows only required arguments in the usage line; the list below it has the others."""

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Any,
        prefix: str | None = None,
    ) -> None:  # fmt: skip
        options = argparse.Action([], "options", nargs="*", metavar="OPTION")
        needed = [action for action in actions if action.required or not action.option_strings]
        super().add_usage(usage, [options, *needed], (), prefix)


class CommandParser(argparse.ArgumentParser):
    """A parser that reports an error in one line, without the usage above it."""

    def __init__(self, **how: Any) -> None:
        super().__init__(formatter_class=_Help, **how)
        self.register("type", Path, _path)

    def error(self, message: str) -> NoReturn:
        complain(f"{message} ({self.prog} --help)")
        sys.exit(WRONG_USAGE)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """End the program with an error about arguments that the command does not have."""
        first = unknown[0]
        flags = _FLAG.findall(self.format_help())
        if not first.startswith("-"):
            named = ", and name a model with --target" if "--target" in flags else ""
            self.error(f"{first!r} is one argument too many; quote what has spaces in it{named}")
        self.error(f"there is no {first}{did_you_mean(first.split('=')[0], flags)}")


def _path(text: str) -> Path:
    """An argparse type for paths. It refuses an empty text, which an unset shell variable leaves
    and which Path would take for the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; name a file")
    return Path(text)


def checked_type(given: str, known: Iterable[str]) -> str:
    """The name of a quantisation in lower case. Raises WrongUsageError if it is unknown."""
    if given.lower() not in known:
        raise WrongUsageError(f"{given} is not a type; known are {', '.join(known)}")
    return given.lower()


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """The known name nearest to the given one, as the end of a sentence; empty if none is near, or
    if the given one is known."""
    near = get_close_matches(given, list(known), 1, cutoff=0.65)
    return f"; did you mean {near[0]}?" if near and near[0] != given else ""

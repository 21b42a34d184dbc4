"""The parser of the command line: what is wrong in one line, and what may have been meant."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from eaglechat.cli.status import WRONG_USAGE, complain

_FLAG = re.compile(r"(?<!\S)--[a-z][a-z-]*")


class CommandHelp(argparse.HelpFormatter):
    """Names in the usage only what must be given; the list below it has the rest."""

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Any,
        prefix: str | None = None,
    ) -> None:  # fmt: skip
        options = argparse.Action([], "options", nargs="*", metavar="OPTION")
        needed = [action for action in actions if action.required or not action.option_strings]
        super().add_usage(usage, [options, *needed], (), prefix)


class CommandParser(argparse.ArgumentParser):
    """A parser whose complaints are not behind a page of flags."""

    def __init__(self, **how: Any) -> None:
        super().__init__(formatter_class=CommandHelp, **how)
        self.register("type", Path, _path)

    def error(self, message: str) -> NoReturn:
        complain(f"{message} ({self.prog} --help)")
        sys.exit(WRONG_USAGE)

    def has(self, flag: str) -> bool:
        return flag in _FLAG.findall(self.format_help())

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Complain of what no argument takes."""
        first = unknown[0]
        if not first.startswith("-"):
            self.error(f"{first!r} is one argument too many; quote what has spaces in it")
        flags = _FLAG.findall(self.format_help())
        self.error(f"there is no {first}{did_you_mean(first.split('=')[0], flags)}")


def _path(text: str) -> Path:
    """What an unset variable leaves is no path, not the folder one is in."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; name a file")
    return Path(text)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """The nearest of the names there are, to end a sentence with; empty where none is near."""
    near = get_close_matches(given, list(known), 1, cutoff=0.65)
    return f"; did you mean {near[0]}?" if near else ""

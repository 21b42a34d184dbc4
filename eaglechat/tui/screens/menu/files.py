"""GGUF files by their paths: what is typed in the menu's filter, and what completes it.

Behind the path of a target and a space, a second path is that of its draft.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import pair_of_files
from eaglechat.paths import expanded

MOST = 200
"""Directories and files that are offered for what is typed."""
_IS_PATH = re.compile(
    r"""["']?(?:[/~]|\.{1,2}[/\\]|[A-Za-z]:[/\\]|.*\.gguf["']?(?:\s|$))""", re.IGNORECASE
)
_TARGET_AND_DRAFT = re.compile(r"""(?P<target>.+?\.gguf["']?)\s+(?P<draft>.*)""", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """A directory or a file that completes what is typed: the pair of a file can be loaded."""

    name: str
    typed: str
    """What the filter is with it."""
    pair: Pair | None


def is_path(typed: str) -> bool:
    return _IS_PATH.match(typed.lstrip()) is not None


def places(typed: str) -> list[Place]:
    """The directories and GGUF files that begin as what is typed. May take seconds."""
    typed = typed.lstrip()
    before, target = "", None
    if (both := _TARGET_AND_DRAFT.fullmatch(typed)) is not None:
        target = expanded(_plain(both["target"]))
        before, typed = f"{both['target']} ", both["draft"]
    path = _plain(typed)
    directory, name = _split(path)
    if target is not None and not path:
        # A draft is often beside its target.
        directory = f"{target.parent}{os.sep}"
    found = []
    for entry, is_directory in _entries(directory, name):
        whole = f"{directory}{entry}"
        if is_directory:
            found.append(Place(f"{entry}{os.sep}", f"{before}{whole}{os.sep}", None))
        elif target is None:
            found.append(Place(entry, whole, pair_of_files(expanded(whole), None)))
        elif expanded(whole) != target:
            pair = pair_of_files(target, expanded(whole))
            found.append(Place(entry, f"{before}{whole}", pair))
    return found


def _plain(typed: str) -> str:
    """A path as it is, of one that was typed or dragged into the terminal: in quotes, or with
    escaped spaces."""
    typed = typed.strip()
    if typed[:1] in ("'", '"'):
        typed = typed.strip(typed[0])
    elif os.sep == "/":
        typed = re.sub(r"""\\([\s'"()&;])""", r"\1", typed)
    return typed


def _split(path: str) -> tuple[str, str]:
    """The directory with its last separator, and the beginning of a name in it."""
    separators = {os.sep, os.altsep or os.sep}
    stop = max(path.rfind(separator) for separator in separators) + 1
    if path == "~":
        return f"~{os.sep}", ""
    return path[:stop], path[stop:]


def _entries(directory: str, begin: str) -> Sequence[tuple[str, bool]]:
    """The names in a directory that begin so, and whether each is a directory: these first."""
    found: list[tuple[str, bool]] = []
    wanted = begin.casefold()
    for entry in _scanned(expanded(directory or ".")):
        is_hidden = entry.name.startswith(".") and not begin.startswith(".")
        if is_hidden or not entry.name.casefold().startswith(wanted):
            continue
        with suppress(OSError):
            is_directory = entry.is_dir()
            if is_directory or entry.name.lower().endswith(".gguf"):
                found.append((entry.name, is_directory))
    return sorted(found, key=lambda one: (not one[1], one[0].casefold()))[:MOST]


def _scanned(directory: Path) -> Iterator[os.DirEntry[str]]:
    # What is typed may be too long for a path, or have a character that none has.
    with suppress(OSError, ValueError), os.scandir(directory) as entries:
        yield from entries

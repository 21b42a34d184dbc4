"""GGUF files by their paths: what is typed in the menu's filter, and what completes it.

Behind the path of a target and a space, a second path is that of its draft.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from eaglechat.chat.writing.files import fitting, list_directory
from eaglechat.hub.local.pairs import Pair, pair_of_files
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
    """The directories and GGUF files that fit what is typed. May take seconds."""
    typed = typed.lstrip()
    before, target = "", None
    if (both := _TARGET_AND_DRAFT.fullmatch(typed)) is not None:
        target = expanded(_plain(both["target"]))
        before, typed = f"{both['target']} ", both["draft"]
    path = _plain(typed)
    if target is not None and not path:
        # A draft is often beside its target.
        path = f"{target.parent}{os.sep}"
    elif path == "~":
        path = f"~{os.sep}"
    name_at = max(path.rfind(os.sep), path.rfind("/")) + 1
    directory = path[:name_at]
    directories, files = list[Place](), list[Place]()
    for entry in fitting(list_directory(directory), path[name_at:]):
        whole = f"{directory}{entry.name}"
        file = expanded(whole)
        if entry.size is None:
            name = f"{entry.name}{os.sep}"
            directories.append(Place(name, f"{before}{whole}{os.sep}", None))
        elif entry.name.lower().endswith(".gguf") and file != target:
            pair = pair_of_files(file, None) if target is None else pair_of_files(target, file)
            files.append(Place(entry.name, f"{before}{whole}", pair))
    return [*directories, *files][:MOST]


def _plain(typed: str) -> str:
    """A path as it is, of one that was typed or dragged into the terminal: in quotes, or with
    escaped spaces."""
    typed = typed.strip()
    if typed[:1] in ("'", '"'):
        typed = typed.strip(typed[0])
    elif os.sep == "/":
        typed = re.sub(r"""\\([\s'"()&;])""", r"\1", typed)
    return typed

"""Files for a question: which there are behind an `@`, and one read as a part."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eaglechat.chat.recording import TurnPart
from eaglechat.chat.writing.ignored import ignored_in
from eaglechat.chat.writing.parts import of_file, tokens_about
from eaglechat.hub.units import format_bytes

AT = "@"
MOST_BYTES = 2**20
MOST_LISTED = 5000
"""Entries of a directory that are looked at."""
_LEFT_OUT = {"__pycache__", "node_modules"}
_TYPED = re.compile(r'(?:^|(?<=\s))@(?:"(?P<quoted>[^"]*)|(?P<plain>[^\s"]*))$')


class AttachError(ValueError):
    """A file that cannot be brought into a question; the text is a sentence for people."""


@dataclass(frozen=True)
class TypedPath:
    """A path that is being typed behind an `@`: where that stands, and its two halves."""

    start: int
    directory: str
    name: str


@dataclass(frozen=True)
class Listed:
    """An entry of a directory; `size` is in bytes, None for a directory. One that git ignores is
    listed where nothing else fits."""

    name: str
    size: int | None
    is_ignored: bool = False


def typed_path(before: str) -> TypedPath | None:
    """The path that ends where the cursor stands, if one is being typed there."""
    found = _TYPED.search(before)
    if found is None:
        return None
    path = found["quoted"] if found["quoted"] is not None else found["plain"]
    directory, slash, name = path.rpartition("/")
    return TypedPath(found.start(), directory + slash, name)


def as_typed(path: str) -> str:
    """A path behind its `@`, in quotes where it needs some."""
    return f'{AT}"{path}' if re.search(r"\s", path) else f"{AT}{path}"


def list_directory(directory: str, base: Path) -> tuple[Listed, ...]:
    """What lies in a directory as it was typed, under `base` unless it is absolute; nothing where
    it cannot be read. It may take long."""
    found: list[Listed] = []
    try:
        place = _place(directory or ".", base)
        is_ignored = ignored_in(place)
        with os.scandir(place) as entries:
            for entry in entries:
                if len(found) == MOST_LISTED:
                    break
                is_directory = entry.is_dir()
                if is_directory or entry.is_file():
                    size = None if is_directory else entry.stat().st_size
                    left_out = entry.name in _LEFT_OUT or is_ignored(entry.name, is_directory)
                    found.append(Listed(entry.name, size, left_out))
    except (OSError, RuntimeError, ValueError):
        # A loop of links up to Python 3.12, and the home of a user that is none.
        pass
    return tuple(sorted(found, key=lambda one: one.name.casefold()))


def fitting(listed: Sequence[Listed], name: str) -> list[Listed]:
    """Those whose name begins so, then those in which it stands. What is hidden must be asked
    for, and what is ignored is shown where nothing else fits."""
    seen = [one for one in listed if name.startswith(".") or not one.name.startswith(".")]
    kept = _fitting([one for one in seen if not one.is_ignored], name)
    return kept or _fitting(seen, name)


def _fitting(seen: list[Listed], name: str) -> list[Listed]:
    wanted = name.casefold()
    begin = [one for one in seen if one.name.casefold().startswith(wanted)]
    inside = [one for one in seen if wanted in one.name.casefold()[1:]] if len(wanted) > 1 else []
    return [*dict.fromkeys((*begin, *inside))]


def read_part(path: str, base: Path, n_ctx: int) -> TurnPart:
    """A text file as a part of a question. `n_ctx` is what the context holds, 0 where that is not
    known. It may take long. Raises AttachError."""
    content = _text(path, _bytes(path, base))
    tokens = tokens_about(content)
    if n_ctx and tokens > n_ctx:
        raise AttachError(f"{path} has about {tokens:,} tokens, and the context holds {n_ctx:,}.")
    return of_file(path, content)


def _place(path: str, base: Path) -> Path:
    """Raises RuntimeError for the home of a user that is none."""
    return base / Path(path).expanduser()


def _bytes(path: str, base: Path) -> bytes:
    try:
        place = _place(path, base)
        status = place.stat()
        if not stat.S_ISREG(status.st_mode):
            raise AttachError(f"{path} is not a file.")
        if status.st_size > MOST_BYTES:
            size, most = format_bytes(status.st_size), format_bytes(MOST_BYTES)
            raise AttachError(f"{path} is too large: {size}, and at most {most} can be attached.")
        return place.read_bytes()
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, AttachError):
            raise
        why = getattr(error, "strerror", None) or error
        raise AttachError(f"{path} cannot be read: {why}.") from error


def _text(path: str, content: bytes) -> str:
    if b"\0" in content:
        raise AttachError(f"{path} is not a text file.")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise AttachError(f"{path} is not text in UTF-8.") from None

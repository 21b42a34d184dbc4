"""Files for a question: completion of a path behind an `@`, and a file read as a part."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from eaglechat.chat.recording import TurnPart
from eaglechat.chat.writing.question import of_file, tokens_about
from eaglechat.hub.units import format_bytes

AT = "@"
MOST_BYTES = 2**20
MOST_LISTED = 20_000
"""Entries of a directory that are read."""
_TYPED = re.compile(r'(?:^|(?<=\s))@(?:"(?P<quoted>[^"]*)|(?P<plain>[^\s"]*))$')


@dataclass(frozen=True)
class Listed:
    """An entry of a directory; `size` is in bytes, None for a directory."""

    name: str
    size: int | None


def typed_path(before: str) -> tuple[int, str, str] | None:
    """The path that is being typed behind an `@` at the end of this text, if there is one: the
    index of the `@`, the directory and the beginning of a name."""
    found = _TYPED.search(before)
    if found is None:
        return None
    path = found["quoted"] if found["quoted"] is not None else found["plain"]
    directory, slash, name = path.rpartition("/")
    return found.start(), directory + slash, name


def as_typed(path: str) -> str:
    """A path behind its `@`, in quotes where it needs some."""
    return f'{AT}"{path}' if re.search(r"\s", path) else f"{AT}{path}"


def list_directory(directory: str) -> tuple[Listed, ...]:
    """The entries of a directory; none if it cannot be read. May take seconds."""
    sizes: dict[str, int | None] = {}
    # The home of an unknown user is a RuntimeError.
    with (
        suppress(OSError, RuntimeError, ValueError),
        os.scandir(Path(directory).expanduser()) as found,
    ):
        for entry in islice(found, MOST_LISTED):
            with suppress(OSError, RuntimeError):  # so is a loop of links, up to Python 3.12
                if entry.is_dir():
                    sizes[entry.name] = None
                elif entry.is_file():
                    sizes[entry.name] = entry.stat().st_size
    return tuple(Listed(name, sizes[name]) for name in sorted(sizes, key=str.casefold))


def fitting(listed: Sequence[Listed], name: str) -> list[Listed]:
    """The entries whose name begins with `name`, then those that contain it. Hidden ones only if
    `name` begins with a dot."""
    wanted = name.casefold()
    seen = [one for one in listed if name.startswith(".") or not one.name.startswith(".")]
    begin = [one for one in seen if one.name.casefold().startswith(wanted)]
    inside = [one for one in seen if wanted in one.name.casefold()[1:]] if len(wanted) > 1 else []
    return [*dict.fromkeys((*begin, *inside))]


def read_part(path: str, n_ctx: int) -> TurnPart:
    """A text file as a part of a question. `n_ctx` is the length of the context in tokens, 0 if
    unknown. May take seconds. Raises ValueError, which says why in a sentence."""
    try:
        place = Path(path).expanduser()
        status = place.stat()
        is_file, size = stat.S_ISREG(status.st_mode), status.st_size
        raw = place.read_bytes() if is_file and size <= MOST_BYTES else b""
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"{path} cannot be read: {why}.") from error
    if not is_file:
        raise ValueError(f"{path} is not a file.")
    if size > MOST_BYTES:
        most = format_bytes(MOST_BYTES)
        raise ValueError(
            f"{path} is too large: {format_bytes(size)}, and at most {most} can be attached."
        )
    if b"\0" in raw:
        raise ValueError(f"{path} is not a text file.")
    try:
        content = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8.") from None
    tokens = tokens_about(content)
    if n_ctx and tokens > n_ctx:
        raise ValueError(f"{path} has about {tokens:,} tokens, and the context holds {n_ctx:,}.")
    return of_file(path, content)

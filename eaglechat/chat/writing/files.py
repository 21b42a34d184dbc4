"""Files for a question: completion of a path behind an `@`, and a file read as a part."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from eaglechat.chat.recording import TurnPart
from eaglechat.chat.writing.question import of_file, tokens_about
from eaglechat.hub.units import format_bytes

AT = "@"
MOST_BYTES = 2**20
MOST_LISTED = 5000
"""Entries of a directory that are read."""
_LEFT_OUT = {"__pycache__", "node_modules"}
_GIT_WAIT_S = 2.0
_TYPED = re.compile(r'(?:^|(?<=\s))@(?:"(?P<quoted>[^"]*)|(?P<plain>[^\s"]*))$')


class AttachError(ValueError):
    """A file cannot be attached: a sentence that says why."""


@dataclass(frozen=True)
class TypedPath:
    """A path that is being typed behind an `@`. `start` is the index of the `@`."""

    start: int
    directory: str
    name: str


@dataclass(frozen=True)
class Listed:
    """An entry of a directory; `size` is in bytes, None for a directory. An entry that git ignores
    is offered only if no other fits."""

    name: str
    size: int | None
    is_ignored: bool = False


def typed_path(before: str) -> TypedPath | None:
    """The path that is being typed at the end of this text, if there is one."""
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
    """The entries of a directory, which is relative to `base` or absolute; none if it cannot be
    read. May take seconds."""
    sizes: dict[str, int | None] = {}
    # A loop of links is a RuntimeError up to Python 3.12, and so is the home of an unknown user.
    with suppress(OSError, RuntimeError, ValueError):
        place = _place(directory or ".", base)
        with os.scandir(place) as entries:
            for entry in entries:
                if len(sizes) == MOST_LISTED:
                    break
                with suppress(OSError):
                    if entry.is_dir():
                        sizes[entry.name] = None
                    elif entry.is_file():
                        sizes[entry.name] = entry.stat().st_size
        ignored = _ignored(place, sizes) | _LEFT_OUT
        names = sorted(sizes, key=str.casefold)
        return tuple(Listed(name, sizes[name], name in ignored) for name in names)
    return ()


def _ignored(directory: Path, names: Iterable[str]) -> set[str]:
    """Which of these names in a directory git ignores; none outside a work tree or without git."""
    git = shutil.which("git")
    # On Windows a git.exe in the working directory comes first, which may be anybody's.
    if git is None or not Path(git).is_absolute():
        return set()
    # "./" because git takes a name that begins with ":" as a pattern.
    asked = b"".join(b"./" + os.fsencode(name) + b"\0" for name in names)
    command = [git, "-c", "core.fsmonitor=false", "check-ignore", "-z", "--stdin"]
    try:
        said = subprocess.run(
            command,
            cwd=directory,
            input=asked,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_WAIT_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return set()
    return {os.fsdecode(name[2:]) for name in said.split(b"\0") if name}


def fitting(listed: Sequence[Listed], name: str) -> list[Listed]:
    """The entries whose name begins with `name`, then those that contain it. Hidden ones only if
    `name` begins with a dot, ignored ones only if no other fits."""
    wanted = name.casefold()
    seen = [one for one in listed if name.startswith(".") or not one.name.startswith(".")]
    begin = [one for one in seen if one.name.casefold().startswith(wanted)]
    inside = [one for one in seen if wanted in one.name.casefold()[1:]] if len(wanted) > 1 else []
    found = [*dict.fromkeys((*begin, *inside))]
    return [one for one in found if not one.is_ignored] or found


def read_part(path: str, base: Path, n_ctx: int) -> TurnPart:
    """A text file as a part of a question. `n_ctx` is the length of the context in tokens, 0 if
    unknown. May take seconds. Raises AttachError."""
    try:
        place = _place(path, base)
        status = place.stat()
        if not stat.S_ISREG(status.st_mode):
            raise AttachError(f"{path} is not a file.")
        if status.st_size > MOST_BYTES:
            raise AttachError(
                f"{path} is too large: {format_bytes(status.st_size)}, and at most "
                f"{format_bytes(MOST_BYTES)} can be attached."
            )
        raw = place.read_bytes()
    except AttachError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise AttachError(f"{path} cannot be read: {why}.") from error
    if b"\0" in raw:
        raise AttachError(f"{path} is not a text file.")
    try:
        content = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise AttachError(f"{path} is not text in UTF-8.") from None
    tokens = tokens_about(content)
    if n_ctx and tokens > n_ctx:
        raise AttachError(f"{path} has about {tokens:,} tokens, and the context holds {n_ctx:,}.")
    return of_file(path, content)


def _place(path: str, base: Path) -> Path:
    """Raises RuntimeError for the home of an unknown user."""
    return base / Path(path).expanduser()

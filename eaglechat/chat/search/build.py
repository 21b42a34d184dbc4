"""Brings the index up to date: only chats whose files changed are read, oldest first, so that what
was written last is found first."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from eaglechat.chat.history.listing import ChatSummary, stamps, summarise
from eaglechat.chat.history.reading import read_chat
from eaglechat.chat.search.index import Index, IndexedTurn, NoIndexError, opened
from eaglechat.chat.search.passages import spans

_BATCH_S = 0.5
_EMPTY = (0, 0)


@dataclass(frozen=True)
class Progress:
    """Chats that were read, of those that had to be."""

    done: int
    total: int


def update(file: Path, directory: Path) -> Iterator[Progress]:
    """Bring the index in `file` up to date with a folder of chats; nothing is done where another
    program does it just now. Raises NoIndexError."""
    with opened(file, directory) as index:
        lock = FileLock(f"{file}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return
        except OSError as error:
            raise NoIndexError(f"its index, {file}, cannot be used: {error.strerror}") from error
        try:
            yield from _update(index, directory)
        finally:
            lock.release()


def _update(index: Index, directory: Path) -> Iterator[Progress]:
    if index.is_worn():
        index.forget_all()
    read, there = index.read(), stamps(directory)
    index.forget(index.known().keys() - there.keys())
    changed = [directory / name for name, stamp in there.items() if read.get(name) != stamp]
    changed.sort(key=lambda file: there[file.name][1])
    yield Progress(0, len(changed))
    waiting: list[tuple[ChatSummary, list[IndexedTurn]]] = []
    due = time.monotonic() + _BATCH_S
    for done, file in enumerate(changed, 1):
        # Before its text is read: what is written meanwhile is read the next time.
        summary = summarise(file, there[file.name])
        waiting.append((summary, turns_of(file)))
        if time.monotonic() >= due or done == len(changed):
            index.take(waiting)
            waiting.clear()
            yield Progress(done, len(changed))
            due = time.monotonic() + _BATCH_S


def turns_of(file: Path) -> list[IndexedTurn]:
    """The turns of a chat, of all its branches; none of a file that cannot be read."""
    try:
        turns, places = read_chat(file).turns, spans(file.read_bytes())
    except (OSError, ValueError):
        return []
    return [
        IndexedTurn(
            turn.id,
            turn.text,
            turn.reasoning,
            zlib.crc32(f"{turn.text}\0{turn.reasoning}".encode("utf-8", "replace")),
            places.get(turn.id, _EMPTY),
        )
        for turn in turns
    ]

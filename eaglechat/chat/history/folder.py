"""The folder of chats: its list, what is found in them, and what can be done to a chat that is not
open: rename, pin, delete, restore."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from eaglechat.chat.conversation.turns import TurnId
from eaglechat.chat.history import lines
from eaglechat.chat.history.listing import (
    ChatSummary,
    latest_chats,
    list_chats,
    stamps,
    summarise,
    summary_line,
    title_of,
)
from eaglechat.chat.history.log import ChatInUseError, ChatLog
from eaglechat.chat.history.saved_chat import SavedChat, read_chat
from eaglechat.chat.search import Excerpt, Query, excerpt, folded, parse

MOST_FOUND, MOST_OF_A_CHAT = 60, 3
"""Hits that are shown, in all and of one chat."""
KEPT_DAYS = 30
"""How long a deleted chat can be restored."""
_DELETED_NAME = re.compile(r"(\d+)\.(.+\.jsonl)")


@dataclass(frozen=True)
class ReadProgress:
    """How many of the chats that had to be read were read."""

    done: int
    total: int


@dataclass(frozen=True)
class Hit:
    """A turn in which all terms of a query were found."""

    chat: ChatSummary
    turn: TurnId
    is_thought: bool
    """The excerpt is from the reasoning."""
    excerpt: Excerpt


@dataclass(frozen=True)
class _Texts:
    """The answer or question of a turn and its reasoning, each also folded for comparing."""

    turn: TurnId
    said: str
    thought: str
    plain_said: str
    plain_thought: str


class ChatFolder:
    """The chats of one folder. Any thread may call its methods, `read` one at a time.

    A search goes through the texts of all chats in memory: no index has to be kept up to date.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.trash = Trash(directory.with_name("trash"))
        self._texts: dict[str, tuple[ChatSummary, tuple[_Texts, ...]]] = {}
        """By the name of the file, the latest turn of a chat first."""
        self._latest_search = 0

    def listed(self) -> Iterator[list[ChatSummary]]:
        """The list, longer each time; the last one is complete."""
        return list_chats(self.directory)

    def latest(self, count: int) -> list[ChatSummary]:
        """The chats used last, of those that can be resumed."""
        return latest_chats(self.directory, count)

    def read(self) -> Iterator[ReadProgress]:
        """Read the chats whose files changed since the last time, the latest first, and delete for
        good what was deleted long ago."""
        self.trash.empty()
        there = stamps(self.directory)
        for name in self._texts.keys() - there.keys():
            del self._texts[name]
        changed = [n for n in there if n not in self._texts or self._texts[n][0].stamp != there[n]]
        changed.sort(key=lambda name: there[name][1], reverse=True)
        yield ReadProgress(0, len(changed))
        for done, name in enumerate(changed, 1):
            # The summary first: what is written meanwhile changes the stamp again.
            summary = summarise(self.directory / name, there[name])
            self._texts[name] = summary, _texts_of(summary.file)
            yield ReadProgress(done, len(changed))

    def find(self, typed: str) -> list[Hit] | None:
        """The turns in which the query is found, of the chats used last first, as far as chats were
        read. None if another search was begun meanwhile."""
        return self.search(typed)()

    def search(self, typed: str) -> Callable[[], list[Hit] | None]:
        """Start a search and cancel the one before. Returns the function that runs it, as `find`;
        threads may call such functions in any order."""
        self._latest_search += 1
        return partial(self._find, self._latest_search, parse(typed))

    def _find(self, number: int, query: Query) -> list[Hit] | None:
        hits: list[Hit] = []
        chats = sorted(self._texts.copy().values(), key=lambda chat: chat[0].used, reverse=True)
        for summary, turns in chats if query.terms else ():
            if number != self._latest_search:
                return None
            found = (_hit(summary, texts, query) for texts in turns)
            hits += islice(filter(None, found), MOST_OF_A_CHAT)
            if len(hits) >= MOST_FOUND:
                break
        return hits[:MOST_FOUND]


def _texts_of(file: Path) -> tuple[_Texts, ...]:
    """The turns of every branch, the latest first; none of a file that cannot be read."""
    try:
        turns = reversed([*read_chat(file).turns])
    except (OSError, lines.ChatFormatError):
        return ()
    return tuple(
        _Texts(turn.id, text := turn.text, thought := turn.reasoning, folded(text), folded(thought))
        for turn in turns
    )


def _hit(chat: ChatSummary, texts: _Texts, query: Query) -> Hit | None:
    plain = (texts.plain_said, texts.plain_thought)
    if not all(any(map(term.is_in, plain)) for term in query.terms):
        return None
    is_thought = not query.is_in(texts.said)
    text = texts.thought if is_thought else texts.said
    return Hit(chat, texts.turn, is_thought, excerpt(text, query))


# What is done to a chat that is not open


def rename(file: Path, title: str) -> None:
    """Give a chat a title; an empty one stands for its first question.

    Raises ChatInUseError, OSError, and ChatFormatError if the file is not a chat.
    """
    chat = read_chat(file)
    chat.title = title_of(title)
    _annotate(chat, lines.TitleLine(title=chat.title))


def pin(file: Path, pinned: bool) -> None:
    """Put a chat at the top of the list, or back among the others. Raises as `rename` does."""
    chat = read_chat(file)
    chat.pinned = pinned
    _annotate(chat, lines.PinnedLine(pinned=pinned))


def _annotate(chat: SavedChat, line: lines.Line) -> None:
    """Add a line; the time at which the chat was used last stays."""
    before = chat.file.stat()
    problems: list[OSError] = []
    log = _locked(chat.file, problems)
    log.add(line, summary_line(chat.turns, chat.unsent_text, chat.title, chat.pinned))
    log.close()
    if problems:
        raise problems[0]
    os.utime(chat.file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _locked(file: Path, problems: list[OSError]) -> ChatLog:
    """The log of a file, which no other program can write to until it is closed. Raises
    ChatInUseError and OSError."""
    file.stat()
    log = ChatLog(file, lambda _, why: problems.append(why))
    if not log.open():
        raise ChatInUseError
    return log


class Trash:
    """A folder of deleted chats, each named after the time of its deletion and its former name."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock

    def take(self, file: Path) -> None:
        """Delete a chat. Raises ChatInUseError and OSError."""
        _locked(file, []).close()
        self._folder.mkdir(parents=True, exist_ok=True)
        file.rename(self._folder / f"{int(self._clock() * 1000)}.{file.name}")

    def restore(self, directory: Path) -> Path | None:
        """Restore the chat that was deleted last; None if there is none. Raises OSError."""
        deleted = max(self._deleted(), default=None)
        if deleted is None:
            return None
        _, name, file = deleted
        place = directory / name
        if place.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
        directory.mkdir(parents=True, exist_ok=True)
        return file.rename(place)

    def empty(self) -> None:
        """Delete for good what was deleted more than `KEPT_DAYS` ago."""
        oldest = (self._clock() - KEPT_DAYS * 86400) * 1000
        for deleted_at, _, file in self._deleted():
            if deleted_at < oldest:
                with suppress(OSError):
                    file.unlink()

    def _deleted(self) -> Iterator[tuple[int, str, Path]]:
        for file in self._folder.glob("*.jsonl"):
            if name := _DELETED_NAME.fullmatch(file.name):
                yield int(name[1]), name[2], file

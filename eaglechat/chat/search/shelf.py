"""All chats of a folder: their list, what is found in them, their names, and the deleted ones.

The index makes it fast. Where there is none, the list is read from the files, and `problem` says
why nothing can be found in them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from eaglechat.chat.conversation.turns import TurnId
from eaglechat.chat.history.listing import ChatSummary, list_chats
from eaglechat.chat.history.trash import Trash
from eaglechat.chat.search import build
from eaglechat.chat.search.build import Progress
from eaglechat.chat.search.index import Hit, Index, NoIndexError, opened
from eaglechat.chat.search.passages import Passage, passage, texts_of
from eaglechat.chat.search.query import Query, parse

Answer = TypeVar("Answer")

MOST_FOUND, MOST_OF_A_CHAT = 60, 3
"""Hits that are shown, in all and of one chat."""


@dataclass(frozen=True)
class Found:
    """A turn in which everything was found that was looked for, and the words around it."""

    chat: ChatSummary
    turn: TurnId
    is_thought: bool
    passage: Passage


class ChatShelf:
    """The chats of one folder. Each method may run in a thread of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.trash = Trash(directory.with_name("trash"))
        self.index_file = directory.with_name(f"{directory.name}.sqlite3")
        self.problem: str | None = None
        """Why nothing can be found in the chats, as the latest look at the index has it."""
        self._searching: Index | None = None
        self._latest = 0
        self._one_at_a_time = threading.Lock()

    def listed(self) -> Iterator[list[ChatSummary]]:
        """The list, as `list_chats` has it: what is known of the chats comes at once."""
        known = self._ask(Index.known) or {}
        listed: list[ChatSummary] = []
        for listed in list_chats(self.directory, known):
            yield listed
        new = [chat for chat in listed if known.get(chat.file.name) != chat]
        if new:
            self._ask(lambda index: index.keep(new))

    def update(self) -> Iterator[Progress]:
        """Bring the index up to date, and delete for good what was deleted long ago."""
        self.trash.empty()
        try:
            yield from build.update(self.index_file, self.directory)
            self.problem = None
        except NoIndexError as error:
            self.problem = str(error)

    def find(self, typed: str, *, with_thoughts: bool = False) -> list[Found] | None:
        """What was typed, found in all chats; None where another search has begun meanwhile."""
        return self.search(typed, with_thoughts=with_thoughts)()

    def search(self, typed: str, *, with_thoughts: bool) -> Callable[[], list[Found] | None]:
        """Begin a search, which ends those before it: what is returned does it, as `find` has it,
        in whatever order threads come to it."""
        self._latest += 1
        if (searching := self._searching) is not None:
            searching.interrupt()
        return partial(self._find, self._latest, parse(typed), with_thoughts)

    def _find(self, number: int, query: Query, with_thoughts: bool) -> list[Found] | None:
        if not query.terms:
            return []
        with self._one_at_a_time:
            if number != self._latest:
                return None
            found = self._ask(lambda index: self._search(index, query, with_thoughts))
            if number != self._latest:
                # That it was ended is no problem.
                self.problem = None
                return None
        return found or []

    def _search(self, index: Index, query: Query, with_thoughts: bool) -> list[Found]:
        self._searching = index
        try:
            hits = index.search(query, MOST_OF_A_CHAT, with_thoughts=with_thoughts)
            return list(_found(islice(hits, MOST_FOUND), query, with_thoughts))
        finally:
            self._searching = None

    def _ask(self, question: Callable[[Index], Answer]) -> Answer | None:
        """What the index answers; None where there is none, and `problem` says why."""
        try:
            with opened(self.index_file, self.directory) as index:
                answer = question(index)
        except NoIndexError as error:
            self.problem = str(error)
            return None
        self.problem = None
        return answer


def _found(hits: Iterator[Hit], query: Query, with_thoughts: bool) -> Iterator[Found]:
    """The passages of hits."""
    for hit in hits:
        with suppress(OSError):
            said, thought = texts_of(hit.chat.file, hit.turn, hit.span)
            is_thought = with_thoughts and not query.is_in(said)
            text = thought if is_thought else said
            yield Found(hit.chat, hit.turn, is_thought, passage(text, query))

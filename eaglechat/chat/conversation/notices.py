"""What is said between the turns of a chat while it is open."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from eaglechat.chat.conversation.parties import Severity
from eaglechat.chat.conversation.turns import TurnId, Turns

NoticeKind = Severity | Literal["question"]


@dataclass(frozen=True)
class Notice:
    """Something said after a turn while the chat is open; a question is one given back."""

    id: int
    after: TurnId | None
    text: str
    kind: NoticeKind


class Notices:
    """Every notice of the chat that is open, oldest first."""

    def __init__(self) -> None:
        self._ids = itertools.count()
        self._notices: list[Notice] = []

    def __iter__(self) -> Iterator[Notice]:
        return iter(self._notices)

    def clear(self) -> None:
        self._notices.clear()

    def say(self, text: str, after: TurnId | None, kind: NoticeKind = "information") -> None:
        self._notices.append(Notice(next(self._ids), after, text, kind))

    def forget_gone(self, turns: Turns) -> None:
        """Drop what was said after turns that are deleted."""
        self._notices = [n for n in self._notices if n.after is None or n.after in turns]

    def take(self, after: Container[TurnId | None]) -> list[Notice]:
        """Take away what was said after these turns."""
        taken = [notice for notice in self._notices if notice.after in after]
        self._notices = [notice for notice in self._notices if notice.after not in after]
        return taken

    def put(self, notices: list[Notice], after: TurnId | None) -> None:
        """Put them back, last, after another turn."""
        self._notices += [replace(notice, after=after) for notice in notices]

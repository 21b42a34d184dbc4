"""Notices between the turns of an open chat. They are not written to disk."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from eaglechat.chat.conversation.turns import TurnId, Turns
from eaglechat.hub.local.pair import Pair
from eaglechat.links.base import Died
from eaglechat.wire.protocol import Hello, PairInfo

Severity = Literal["information", "warning", "error"]
NoticeKind = Severity | Literal["question"]


@dataclass(frozen=True)
class Opened:
    """The chat was opened on this pair; without `info` the pair is missing, and the chat can only
    be read."""

    pair: Pair
    info: PairInfo | None
    hello: Hello | None


News = str | Opened | Died


@dataclass(frozen=True)
class Notice:
    """News after a turn, shown while the chat is open. The kind "question" is a question that was
    given back."""

    id: int
    after: TurnId | None
    news: News
    kind: NoticeKind


class Notices:
    """The notices of the open chat, oldest first."""

    def __init__(self) -> None:
        self._ids = itertools.count()
        self._notices: list[Notice] = []

    def __iter__(self) -> Iterator[Notice]:
        return iter(self._notices)

    def clear(self) -> None:
        self._notices.clear()

    def add(self, news: News, after: TurnId | None, kind: NoticeKind = "information") -> None:
        self._notices.append(Notice(next(self._ids), after, news, kind))

    def forget_gone(self, turns: Turns) -> None:
        """Drop the notices after turns that are deleted."""
        self._notices = [n for n in self._notices if n.after is None or n.after in turns]

    def take(self, after: Container[TurnId | None]) -> list[Notice]:
        """Take out the notices after these turns."""
        taken = [notice for notice in self._notices if notice.after in after]
        self._notices = [notice for notice in self._notices if notice.after not in after]
        return taken

    def put(self, notices: list[Notice], after: TurnId | None) -> None:
        """Put notices back, at the end, after another turn."""
        self._notices += [replace(notice, after=after) for notice in notices]

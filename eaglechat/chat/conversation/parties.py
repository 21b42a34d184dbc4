"""Whom a chat session deals with: an engine that answers, and a view that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from eaglechat.chat.conversation.turns import TurnId
from eaglechat.chat.writing.parts import Draft
from eaglechat.links.base import AnsweredRequest, Listener, Watcher
from eaglechat.wire.protocol import Cancel, Hello, Set

Severity = Literal["information", "warning", "error"]


class Engine(Protocol):
    """What a chat needs of a link."""

    @property
    def hello(self) -> Hello | None: ...
    def request(self, message: AnsweredRequest, listener: Listener) -> int: ...
    def send(self, message: Set | Cancel) -> None: ...
    def watch(self, watcher: Watcher) -> Callable[[], None]: ...


class View(Protocol):
    """Who shows a session."""

    def changed(self) -> None:
        """Something is different. Not said again before the session was looked at."""

    def give_back(self, question: Draft, wording_of: TurnId | None) -> None:
        """A question to which nothing was answered; it is no part of the chat any more. If it was
        another wording of a question, that one is named."""

    def say(self, sentence: str, severity: Severity = "information") -> None:
        """Something to know that is no part of the chat. `{chat.stop}` in it stands for the key of
        that command."""

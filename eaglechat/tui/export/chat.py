"""The chat that an export writes, and the line of numbers that every format prints for a reply."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eaglechat.chat.recording import Recording
from eaglechat.chat.saved_chat import ChatHeader, SavedChat
from eaglechat.chat.turns import Question, Reply, Turns
from eaglechat.words.statistics import ENDINGS, summary


@dataclass(frozen=True)
class ExportedChat:
    """A chat to be exported, with or without the reasoning before the answers."""

    title: str
    header: ChatHeader
    turns: Turns
    with_reasoning: bool = False

    @property
    def about(self) -> str:
        """When the chat began, and with which pair."""
        return f"{self.header.created[:16].replace('T', ' ')}, {self.header.pair}"

    def writer_of(self, reply: Reply) -> str:
        """The pair that wrote a reply."""
        return reply.recording.terms.pair or self.header.pair

    @property
    def exchanges(self) -> Iterator[tuple[Question, Reply | None]]:
        """The questions of the path, each with its answer if there is one."""
        path = self.turns.path
        for place, turn in enumerate(path):
            if isinstance(turn, Question):
                after = path[place + 1] if place + 1 < len(path) else None
                yield turn, after if isinstance(after, Reply) else None

    def place_of(self, turn: Question | Reply) -> str:
        """The number of a turn among its siblings, such as `2 of 3`; empty if it has none."""
        siblings = self.turns.siblings(turn.id)
        return f"{siblings.index(turn.id) + 1} of {len(siblings)}" if len(siblings) > 1 else ""


def exported(chat: SavedChat, *, with_reasoning: bool = False) -> ExportedChat:
    """The saved chat as an export needs it."""
    return ExportedChat(
        chat.title or chat.begins or chat.name, chat.header, chat.turns, with_reasoning
    )


def numbers(recording: Recording) -> str:
    """The numbers of a reply in one line; empty if only its text is known."""
    end = recording.end
    parts = summary(recording.measured, is_over=end is not None)
    if end is not None and end.finish_reason in ENDINGS:
        parts.append(ENDINGS[end.finish_reason])
    return ", ".join(parts)

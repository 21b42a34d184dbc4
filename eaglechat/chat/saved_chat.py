"""A chat: what is open, and what the store keeps."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

import msgspec

from eaglechat.chat.search import Spot
from eaglechat.chat.turns import Question, Reply, TurnId, Turns
from eaglechat.chat.writing.question import QuestionParts, shown, together
from eaglechat.hub.local.pairs import Pair

_LONGEST_TITLE = 160


class ChatHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The models that a chat began with. `created` is local time, ISO 8601."""

    created: str
    pair: str
    target: str
    draft: str | None = None
    server: str = ""
    """Address of the server that ran the model, which `target` then names."""


@dataclass
class SavedChat:
    name: str
    """The local time at which it began. Two chats never have the same."""
    header: ChatHeader
    turns: Turns = field(default_factory=Turns)
    unsent: QuestionParts = ()
    """What is in the prompt, or was when the chat was left."""
    first_question: TurnId | None = None
    """The oldest question in the context; None if no turn has left it."""
    role: str = ""
    """Of the next questions; empty for none."""
    title: str = ""
    """The user's; empty for none."""
    pinned: bool = False
    opened_at: Spot | None = None
    """Where to open it; None: at its end."""
    revision: int = 0
    """Grows whenever the store's chat changes; 0 if the store never had it."""

    @property
    def begins(self) -> str:
        """Its title if the user gave none: its first question, or what is in the prompt."""
        questions = (turn.parts for turn in self.turns.path if isinstance(turn, Question))
        return title_of(shown(next(questions, self.unsent)))

    @property
    def heading(self) -> str:
        """What it is called: by the user, or by its beginning."""
        return self.title or self.begins or self.name

    def give_back_unanswered(self) -> None:
        """Take out the questions that a crash left unanswered; those that were chosen return to the
        prompt, above what was typed since."""
        turns = self.turns
        for turn in reversed([*turns]):
            is_answered = isinstance(turn, Reply) and (
                turn.recording.end is not None or turn.text or turn.reasoning
            )
            if turn.id in turns and not turns.below(turn.id) and not is_answered:
                was_chosen = turns.is_chosen(turn.id)
                question = turns.delete(turn.id)[0]
                if was_chosen and isinstance(question, Question):
                    self.unsent = together(question.parts, self.unsent)


def new_chat(pair: Pair) -> SavedChat:
    """A chat that begins now. The store gets it when there is something to keep."""
    return SavedChat(new_name(), header_of(pair))


def header_of(pair: Pair) -> ChatHeader:
    """The header of a chat that begins now, with this pair."""
    target, draft = pair.to_load
    return ChatHeader(
        created=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        pair=pair.name,
        target=target,
        draft=draft,
        server=pair.server.url if pair.server else "",
    )


def new_name() -> str:
    return f"{datetime.datetime.now():%Y-%m-%d_%H%M%S.%f}"


def title_of(text: str) -> str:
    """A text as a title: one line, cut to `_LONGEST_TITLE` characters."""
    return " ".join(text.lstrip()[: 2 * _LONGEST_TITLE].split())[:_LONGEST_TITLE]

"""A chat as a tree of turns: questions and their replies.

Versions of a question, and several replies to one question, are siblings, of which one is chosen.
The chosen turns from the root down are the path: what is shown, and what is sent to the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from eaglechat.chat.recording import Recording, TurnPart
from eaglechat.wire.protocol import Message

TurnId = int


@dataclass(frozen=True)
class Question:
    """What the user asked. `parent` is the reply it follows, None for the first question."""

    id: TurnId
    parent: TurnId | None
    parts: tuple[TurnPart, ...]

    role: Literal["user"] = "user"
    reasoning: Literal[""] = ""

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


@dataclass(frozen=True)
class Reply:
    """The target's answer to the question `parent`."""

    id: TurnId
    parent: TurnId
    recording: Recording

    role: Literal["assistant"] = "assistant"

    @property
    def text(self) -> str:
        """The answer, without the reasoning."""
        return self.recording.text

    @property
    def reasoning(self) -> str:
        return self.recording.reasoning


Turn = Question | Reply
Branch = tuple[Turn, ...]
"""A turn and all that follow it, parents before their children."""
SomeTurn = TypeVar("SomeTurn", Question, Reply)


class TurnError(ValueError):
    """The tree does not allow this: a mistake of the program, or a line of a damaged file. It has
    the id of the turn in the way, or of the one that is missing."""


class Turns:
    """The tree, and which siblings are chosen. Ids are never used twice."""

    def __init__(self) -> None:
        self._turns: dict[TurnId, Turn] = {}
        # The next two keep their entries about deleted turns, which may be restored: deleting takes
        # only the choice of the root's parent.
        self._children: dict[TurnId | None, list[TurnId]] = {}
        self._chosen: dict[TurnId | None, TurnId] = {}
        self._used: set[TurnId] = set()

    def __contains__(self, id: object) -> bool:
        return id in self._turns

    def __iter__(self) -> Iterator[Turn]:
        """Every turn, parents before their children."""
        return iter(self._turns.values())

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def path(self) -> tuple[Turn, ...]:
        """The chosen turns, from the first question to the last turn."""
        walked: list[Turn] = []
        while (id := self._chosen.get(walked[-1].id if walked else None)) is not None:
            walked.append(self._turns[id])
        return tuple(walked)

    @property
    def last(self) -> Turn | None:
        path = self.path
        return path[-1] if path else None

    @property
    def last_reply(self) -> Reply | None:
        """The last reply on the path, finished or not."""
        return next((turn for turn in reversed(self.path) if isinstance(turn, Reply)), None)

    def question(self, id: TurnId) -> Question:
        return self._get(id, Question)

    def reply(self, id: TurnId) -> Reply:
        return self._get(id, Reply)

    def find(self, id: TurnId) -> Turn | None:
        return self._turns.get(id)

    def is_chosen(self, id: TurnId) -> bool:
        return any(turn.id == id for turn in self.path)

    def below(self, parent: TurnId | None) -> tuple[TurnId, ...]:
        """The turns with this parent, oldest first."""
        return tuple(id for id in self._children.get(parent, ()) if id in self._turns)

    def siblings(self, id: TurnId) -> tuple[TurnId, ...]:
        """The turns with the same parent, this one included, oldest first."""
        return self.below(self._turn(id).parent)

    def place(self, id: TurnId) -> tuple[int, int] | None:
        """The number of a turn among its siblings, from 1, and their count; None if it has none."""
        siblings = self.siblings(id)
        return (siblings.index(id) + 1, len(siblings)) if len(siblings) > 1 else None

    def path_to(self, id: TurnId) -> tuple[Turn, ...]:
        """The turns from the first question to this one, chosen or not."""
        turns = [self._turn(id)]
        while (parent := turns[-1].parent) is not None:
            turns.append(self._turns[parent])
        return tuple(reversed(turns))

    def messages_to(self, id: TurnId) -> tuple[Message, ...]:
        """The messages to send for a reply to this question, or to continue this reply."""
        return tuple(
            Message(role=turn.role, content=turn.text, reasoning=turn.reasoning)
            for turn in self.path_to(id)
        )

    @property
    def chosen(self) -> tuple[TurnId, ...]:
        """The chosen turns, on the path or not, of those that have siblings."""
        return tuple(id for parent, id in self._chosen.items() if len(self.below(parent)) > 1)

    # Growing

    def ask(self, parts: Sequence[TurnPart]) -> Question:
        """Add a question at the end of the path. Raises TurnError if that is a question."""
        last = self.last
        if isinstance(last, Question):
            raise TurnError(last.id)
        return self.add(Question(self._new_id, last.id if last else None, tuple(parts)))

    def edit(self, id: TurnId, parts: Sequence[TurnPart]) -> Question:
        edited = self.add(Question(self._new_id, self.question(id).parent, tuple(parts)))
        self.choose(edited.id)
        return edited

    def answer(self, question: TurnId, recording: Recording) -> Reply:
        reply = self.add(Reply(self._new_id, question, recording))
        self.choose(reply.id)
        return reply

    @property
    def _new_id(self) -> TurnId:
        return max(self._used, default=0) + 1

    def add(self, turn: SomeTurn) -> SomeTurn:
        """Add a turn behind its parent, and choose it among its siblings. Raises TurnError if the
        parent is missing or no turn that it can follow, or if its id was used."""
        if isinstance(turn, Reply):
            self.question(turn.parent)
        elif turn.parent is not None:
            self.reply(turn.parent)
        if turn.id in self._used:
            raise TurnError(turn.id)
        self._used.add(turn.id)
        self._turns[turn.id] = turn
        self._children.setdefault(turn.parent, []).append(turn.id)
        self._chosen[turn.parent] = turn.id
        return turn

    # Choosing and deleting

    def prefer(self, ids: Sequence[TurnId]) -> None:
        """Choose these among their siblings, as `chosen` had them."""
        self._chosen |= {self._turns[id].parent: id for id in ids if id in self._turns}

    def choose(self, id: TurnId) -> None:
        """Choose this turn and the turns above it."""
        for turn in self.path_to(id):
            self._chosen[turn.parent] = turn.id

    def delete(self, id: TurnId) -> Branch:
        """Delete a turn with all that follows it; return what was deleted.

        The only reply to a question takes the question with it: two questions in a row break most
        chat templates.
        """
        turn = self._turn(id)
        if isinstance(turn, Reply) and len(self.siblings(id)) == 1:
            turn = self._turns[turn.parent]
        place = self.siblings(turn.id).index(turn.id)
        branch, waiting = list[Turn](), [turn.id]
        while waiting:
            id = waiting.pop()
            waiting += self.below(id)
            branch.append(self._turns.pop(id))
        if self._chosen.get(turn.parent) == turn.id:
            del self._chosen[turn.parent]
            if left := self.below(turn.parent):
                self._chosen[turn.parent] = left[max(place - 1, 0)]
        return tuple(branch)

    def restore(self, branch: Branch) -> None:
        """Restore what was deleted, and choose its root among its siblings. Raises TurnError if the
        root's parent is deleted too."""
        root = branch[0]
        if root.parent is not None:
            self._turn(root.parent)
        self._turns |= {turn.id: turn for turn in branch}
        self._chosen[root.parent] = root.id

    def _turn(self, id: TurnId) -> Turn:
        if id not in self._turns:
            raise TurnError(id)
        return self._turns[id]

    def _get(self, id: TurnId, kind: type[SomeTurn]) -> SomeTurn:
        found = self.find(id)
        if not isinstance(found, kind):
            raise TurnError(id)
        return found

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
    def parts(self) -> tuple[TurnPart, ...]:
        return self.recording.parts

    @property
    def text(self) -> str:
        """The answer, without the reasoning."""
        return self.recording.text

    @property
    def reasoning(self) -> str:
        return self.recording.reasoning


Turn = Question | Reply
SomeTurn = TypeVar("SomeTurn", Question, Reply)


@dataclass(frozen=True)
class Branch:
    """A deleted turn and everything that followed it, to be restored."""

    root: Turn
    index: int
    """Of the root among its siblings."""
    was_chosen: bool
    turns: dict[TurnId, Turn]
    """By id, parents before their children."""


class TurnError(ValueError):
    """The tree does not allow this: a mistake of the program, or a line of a damaged file. It has
    the id of the turn in the way, or of the one that is missing."""


class Turns:
    """The tree, and which siblings are chosen. Ids are never used twice."""

    def __init__(self) -> None:
        self._turns: dict[TurnId, Turn] = {}
        # The next two keep their entries about deleted turns, because a turn may be restored:
        # deleting takes its root only from the children and the choice of its parent.
        self._children: dict[TurnId | None, list[TurnId]] = {}
        self._chosen: dict[TurnId | None, TurnId] = {}
        self._deleted: dict[TurnId, Branch] = {}
        """By the id of the root."""
        self._used: set[TurnId] = set()
        """Deleted ids are among them: a branch can be restored."""
        self._next_id: TurnId = 1
        self._path: list[Turn] = []
        """The beginning of the path, as far as it was asked for; the rest is followed on demand."""
        self._places: dict[TurnId, int] = {}
        """Index in `_path` of each turn in it."""
        self.version = 0
        """Grows when turns are added or deleted, and when another sibling is chosen."""

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
        return tuple(self._walked())

    @property
    def last(self) -> Turn | None:
        path = self._walked()
        return path[-1] if path else None

    @property
    def last_reply(self) -> Reply | None:
        """The last reply on the path, finished or not."""
        return next((turn for turn in reversed(self._walked()) if isinstance(turn, Reply)), None)

    def question(self, id: TurnId) -> Question:
        return self._get(id, Question)

    def reply(self, id: TurnId) -> Reply:
        return self._get(id, Reply)

    def find(self, id: TurnId) -> Turn | None:
        """The turn with this id, None if there is none."""
        return self._turns.get(id)

    def is_chosen(self, id: TurnId) -> bool:
        """Whether the turn is on the path."""
        self._walked()
        return id in self._places

    def is_followed(self, id: TurnId) -> bool:
        """Whether any turn has this one as its parent."""
        return bool(self._children.get(id))

    def siblings(self, id: TurnId) -> tuple[TurnId, ...]:
        """The turns with the same parent, this one included, oldest first."""
        return tuple(self._children[self._turn(id).parent])

    def beside(self, turn: Turn) -> tuple[TurnId, ...]:
        """The other turns with the same parent, oldest first; `turn` itself may be deleted."""
        return tuple(id for id in self._children.get(turn.parent, ()) if id != turn.id)

    def path_to(self, id: TurnId) -> tuple[Turn, ...]:
        """The turns from the first question to this one, chosen or not."""
        turns = [self._turn(id)]
        while (parent := turns[-1].parent) is not None:
            turns.append(self._turns[parent])
        return tuple(reversed(turns))

    def messages_to(self, id: TurnId) -> tuple[Message, ...]:
        """The messages to send for a reply to this question."""
        return tuple(
            Message(role=turn.role, content=turn.text, reasoning=turn.reasoning)
            for turn in self.path_to(id)
        )

    @property
    def chosen_siblings(self) -> tuple[TurnId, ...]:
        """The chosen turns, on the path or not, of those that have siblings."""
        return tuple(
            id for parent, id in self._chosen.items() if len(self._children.get(parent, ())) > 1
        )

    def choose_siblings(self, ids: Sequence[TurnId]) -> None:
        """Choose what `chosen_siblings` had."""
        for id in ids:
            if id in self._turns:
                self._chosen[self._turns[id].parent] = id
        self._cut_path(None)
        self.version += 1

    # Growing

    def ask(self, parts: Sequence[TurnPart], id: TurnId | None = None) -> Question:
        """Add a question at the end of the path. Raises TurnError if that is a question."""
        last = self.last
        if isinstance(last, Question):
            raise TurnError(last.id)
        return self.add_question(parts, last.id if last else None, id)

    def edit(self, id: TurnId, parts: Sequence[TurnPart]) -> Question:
        """Add another version of a question."""
        return self.add_question(parts, self.question(id).parent)

    def add_question(
        self, parts: Sequence[TurnPart], parent: TurnId | None, id: TurnId | None = None
    ) -> Question:
        """Add a question after the reply `parent`, or a first question, and choose it."""
        if parent is not None:
            self.reply(parent)
        return self._add(Question(self._new_id(id), parent, tuple(parts)))

    def answer(self, question: TurnId, recording: Recording, id: TurnId | None = None) -> Reply:
        """Add a reply to a question and choose it."""
        self.question(question)
        return self._add(Reply(self._new_id(id), question, recording))

    # Choosing and deleting

    def choose(self, id: TurnId) -> None:
        """Choose this turn and the turns above it."""
        turn: Turn | None = self._turn(id)
        climbed: list[Turn] = []
        while turn is not None and turn.id not in self._places:
            climbed.append(turn)
            turn = None if turn.parent is None else self._turns[turn.parent]
        if climbed:
            self._cut_path(climbed[-1].parent)
        for turn in reversed(climbed):
            self._chosen[turn.parent] = turn.id
            self._follow(turn)
        self.version += 1

    def delete(self, id: TurnId) -> Turn:
        """Delete a turn with all that follows it; return the root of what was deleted.

        The only reply to a question takes the question with it: two questions in a row break most
        chat templates.
        """
        turn = self._turn(id)
        if isinstance(turn, Reply) and len(self.siblings(id)) == 1:
            turn = self._turns[turn.parent]
        siblings = self._children[turn.parent]
        index = siblings.index(turn.id)
        was_chosen = self._chosen.get(turn.parent) == turn.id
        branch = Branch(turn, index, was_chosen, {})
        waiting = [turn.id]
        while waiting:
            below = waiting.pop()
            branch.turns[below] = self._turns.pop(below)
            waiting += self._children.get(below, ())
        self._deleted[turn.id] = branch
        siblings.remove(turn.id)
        if was_chosen:
            del self._chosen[turn.parent]
            if siblings:
                self._chosen[turn.parent] = siblings[max(index - 1, 0)]
            self._cut_path(turn.parent)
        self.version += 1
        return turn

    def restore(self, id: TurnId) -> Turn:
        """Restore the branch whose root is this turn, as it was before it was deleted.

        Raises TurnError if there is none, or if its parent is deleted too.
        """
        branch = self._deleted.get(id)
        if branch is None:
            raise TurnError(id)
        root = branch.root
        if root.parent is not None:
            self._turn(root.parent)
        del self._deleted[id]
        self._turns |= branch.turns
        self._children[root.parent].insert(branch.index, id)
        if branch.was_chosen or root.parent not in self._chosen:
            self._chosen[root.parent] = id
            self._cut_path(root.parent)
        self.version += 1
        return root

    def _add(self, turn: SomeTurn) -> SomeTurn:
        self._turns[turn.id] = turn
        self._children.setdefault(turn.parent, []).append(turn.id)
        self.choose(turn.id)
        return turn

    def _new_id(self, wanted: TurnId | None) -> TurnId:
        id = self._next_id if wanted is None else wanted
        if id in self._used:
            raise TurnError(id)
        self._used.add(id)
        self._next_id = max(self._next_id, id + 1)
        return id

    def _turn(self, id: TurnId) -> Turn:
        if id not in self._turns:
            raise TurnError(id)
        return self._turns[id]

    def _get(self, id: TurnId, kind: type[SomeTurn]) -> SomeTurn:
        found = self.find(id)
        if not isinstance(found, kind):
            raise TurnError(id)
        return found

    def _cut_path(self, parent: TurnId | None) -> None:
        """Forget the path behind this turn (all of it for None): another one follows now."""
        end = 0 if parent is None else self._places.get(parent, len(self._path)) + 1
        for turn in self._path[end:]:
            del self._places[turn.id]
        del self._path[end:]

    def _follow(self, turn: Turn) -> None:
        self._places[turn.id] = len(self._path)
        self._path.append(turn)

    def _walked(self) -> list[Turn]:
        """The whole path."""
        while (id := self._chosen.get(self._path[-1].id if self._path else None)) is not None:
            self._follow(self._turns[id])
        return self._path

"""Chats read from their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from eaglechat.chat.conversation.turns import Question, Reply, Turn, TurnError, TurnId, Turns
from eaglechat.chat.history import lines
from eaglechat.chat.history.lines import ChatHeader
from eaglechat.chat.history.packing import PackedPiece, PackedRounds
from eaglechat.chat.recording import Recording, Terms, TurnPart
from eaglechat.chat.writing.question import QuestionParts, text_of, typed


@dataclass(frozen=True)
class Passage:
    """Where to open a chat: at a turn, and at the words that were searched."""

    turn: TurnId
    words: str


@dataclass
class SavedChat:
    """A chat as it is in its file."""

    file: Path
    header: ChatHeader
    turns: Turns = field(default_factory=Turns)
    unsent: QuestionParts = ()
    """What was in the prompt when the chat was left."""
    first_question: TurnId | None = None
    """The oldest question in the context; None if no turn has left it."""
    role: str = ""
    title: str = ""
    """The user's title; if empty, the first question is the title."""
    pinned: bool = False
    opened_at: Passage | None = None
    """Where to open it; None: at its end."""
    size: int = 0
    """Bytes read."""

    @property
    def unsent_text(self) -> str:
        return text_of(self.unsent)


def read_chat(file: Path) -> SavedChat:
    """Read a chat. Raises ChatFormatError as `chat_in` does, and OSError."""
    return chat_in(file, file.read_bytes())


def chat_in(file: Path, raw: bytes) -> SavedChat:
    """The chat in the content of its file. Damaged lines are skipped. Raises ChatFormatError."""
    reader = _Reader(SavedChat(file, lines.header_of(raw), size=len(raw)))
    for other in raw.split(b"\n")[1:]:
        if (line := lines.decode(other)) is not None:
            reader.take(line)
    return reader.finished()


def saved_chats(directory: Path) -> Iterator[SavedChat]:
    """Every chat that can be read, latest first."""
    for file in sorted(directory.glob("*.jsonl"), reverse=True):
        try:
            yield read_chat(file)
        except (OSError, lines.ChatFormatError):
            continue


class _Reader:
    """Builds a chat from its lines, in order."""

    def __init__(self, chat: SavedChat) -> None:
        self._chat, self._turns = chat, chat.turns
        self._terms = Terms(
            pair=chat.header.pair, target=chat.header.target, draft=chat.header.draft
        )
        self._replies: dict[TurnId, tuple[Recording, PackedRounds]] = {}
        """Deleted ones too."""

    def take(self, line: lines.Line) -> None:
        """Apply the next line. It is skipped if it does not fit the tree because others were
        lost."""
        turns = self._turns
        with suppress(TurnError):
            match line:
                case lines.QuestionLine():
                    self._ask(line.parts, line.parent, line.id)
                case lines.TermsLine():
                    self._terms = line.terms
                case lines.ReplyLine():
                    if not isinstance(turns.find(line.parent), Question):
                        self._ask((), line.parent, line.parent)
                    turns.answer(line.parent, self._begin(line.id), line.id)
                case lines.RoundsLine() | lines.GoesOnLine() | lines.EndLine():
                    if line.of in self._replies:
                        self._record(line, *self._replies[line.of])
                case lines.ChosenLine():
                    turns.choose(line.turn)
                case lines.DeletedLine():
                    turns.delete(line.turn)
                case lines.RestoredLine():
                    turns.restore(line.turn)
                case _:
                    self._take_about_chat(line)

    def _take_about_chat(self, line: lines.Line) -> None:
        match line:
            case lines.WindowLine():
                self._chat.first_question = line.question
            case lines.UnsentLine():
                self._chat.unsent = line.parts or typed(line.text)
            case lines.RoleLine():
                self._chat.role = line.role
            case lines.TitleLine():
                self._chat.title = line.title
            case lines.PinnedLine():
                self._chat.pinned = line.pinned

    def _ask(self, parts: Sequence[TurnPart], parent: TurnId | None, id: TurnId) -> None:
        """Add a question; after the last reply if its parent was lost."""
        if parent is not None and not isinstance(self._turns.find(parent), Reply):
            last = self._turns.last_reply
            parent = last.id if last else None
        self._turns.add_question(parts, parent, id)
        self._chat.unsent = ()

    def _begin(self, id: TurnId) -> Recording:
        packed = PackedRounds()
        recording = Recording(self._terms, packed)
        self._replies[id] = recording, packed
        return recording

    def _record(
        self,
        line: lines.RoundsLine | lines.GoesOnLine | lines.EndLine,
        recording: Recording,
        packed: PackedRounds,
    ) -> None:
        match line:
            case lines.RoundsLine():
                packed.add(PackedPiece(line.text, line.reasoning, line.data))
            case lines.GoesOnLine():
                recording.end = None
            case lines.EndLine():
                if line.settled:
                    packed.settle(line.settled)
                recording.changed.update(line.changed)
                recording.speculation_stopped = line.speculation_stopped
                if line.end is not None:
                    recording.finish(line.end, line.stats)

    def finished(self) -> SavedChat:
        """The chat, without questions that a crash left unanswered: the last returns to the
        prompt."""
        chat, turns = self._chat, self._turns
        for turn in reversed([*turns]):
            if turn.id in turns and not turns.is_followed(turn.id) and _is_unanswered(turn):
                was_chosen = turns.is_chosen(turn.id)
                question = turns.delete(turn.id)
                if was_chosen and isinstance(question, Question):
                    chat.unsent = chat.unsent or question.parts
        return chat


def _is_unanswered(turn: Turn) -> bool:
    if isinstance(turn, Question):
        return True
    return turn.recording.end is None and not (turn.text or turn.reasoning)

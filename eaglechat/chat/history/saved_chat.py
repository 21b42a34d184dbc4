"""Chats read from their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from eaglechat.chat.conversation.turns import (
    Comparison,
    Question,
    Reply,
    Turn,
    TurnError,
    TurnId,
    Turns,
)
from eaglechat.chat.history import lines
from eaglechat.chat.history.lines import ChatHeader
from eaglechat.chat.history.packing import last_n_past, unpack
from eaglechat.chat.recording import Recording, Terms, TurnPart
from eaglechat.chat.writing.question import QuestionParts, text_of, typed
from eaglechat.wire.records import Origin, Part, Round, RoundTimings, Token


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
    """Read a chat. Raises ValueError as `chat_in` does, and OSError."""
    return chat_in(file, file.read_bytes())


def chat_in(file: Path, raw: bytes) -> SavedChat:
    """The chat in the content of its file. Damaged lines are skipped. Raises ValueError if it does
    not begin with the header of this version."""
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
        except (OSError, ValueError):
            continue


class _KeptRounds:
    """The lines with rounds of one reply, not yet unpacked."""

    def __init__(self) -> None:
        self.pieces: list[lines.RoundsLine] = []
        self.settled: tuple[str, int] | None = None
        """All rounds in their final form, packed, and how many pieces they replace: a reply that
        was continued has more pieces."""

    def text(self, part: Part) -> str:
        if part is Part.REASONING:
            return "".join(piece.reasoning for piece in self.pieces)
        return "".join(piece.text for piece in self.pieces)

    def rounds(self) -> list[Round]:
        rounds: list[Round] = []
        pieces = self.pieces
        if self.settled is not None:
            data, n_pieces = self.settled
            texts = ["".join(piece.text for piece in pieces[:n_pieces])]
            texts.append("".join(piece.reasoning for piece in pieces[:n_pieces]))
            with suppress(ValueError):
                rounds = unpack(data, *texts)
                pieces = pieces[n_pieces:]
        for piece in pieces:
            try:
                rounds += unpack(piece.data, piece.text, piece.reasoning)
            except ValueError:
                rounds.append(_unknown(len(rounds), piece))
        return rounds

    def n_past(self) -> int:
        data = self.pieces[-1].data if self.pieces else ""
        if self.settled is not None and self.settled[1] == len(self.pieces):
            data = self.settled[0]
        with suppress(ValueError):
            return last_n_past(data)
        return 0


def _unknown(index: int, piece: lines.RoundsLine) -> Round:
    """A round of which only the text is known."""
    texts = ((piece.reasoning, Part.REASONING), (piece.text, Part.ANSWER))
    tokens = tuple(Token(None, text, Origin.UNKNOWN, part=part) for text, part in texts if text)
    return Round(index, 0, (), 0, 0, tokens, 0, RoundTimings(0.0, 0.0, 0.0, 0.0, 0.0))


class _Reader:
    """Builds a chat from its lines, in order."""

    def __init__(self, chat: SavedChat) -> None:
        self._chat, self._turns = chat, chat.turns
        self._terms = Terms(
            pair=chat.header.pair, target=chat.header.target, draft=chat.header.draft
        )
        self._kept: dict[TurnId, _KeptRounds] = {}

    def take(self, line: lines.Line) -> None:
        """Apply the next line. It is skipped if it does not fit the tree because others were
        lost."""
        with suppress(TurnError):
            self._take(line)

    def _take(self, line: lines.Line) -> None:
        match line:
            case lines.QuestionLine():
                self._ask(line.parts, line.parent, line.id)
            case lines.TermsLine():
                self._terms = line.terms
            case lines.ReplyLine():
                if not isinstance(self._turns.find(line.parent), Question):
                    self._ask((), line.parent, line.parent)
                self._turns.answer(line.parent, self._begin(line.id), line.id)
            case lines.ComparisonLine():
                self._turns.compare(line.of, self._begin(line.id), line.id)
            case lines.RoundsLine() if line.of in self._kept:
                self._kept[line.of].pieces.append(line)
            case lines.GoesOnLine() | lines.EndLine():
                self._end(line)
            case lines.ChosenLine() | lines.DeletedLine() | lines.RestoredLine():
                self._branch(line)
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

    def _branch(self, line: lines.ChosenLine | lines.DeletedLine | lines.RestoredLine) -> None:
        match line:
            case lines.ChosenLine():
                self._turns.choose(line.turn)
            case lines.DeletedLine():
                is_turn = isinstance(self._turns.find(line.turn), Question | Reply)
                (self._turns.delete if is_turn else self._turns.drop_comparison)(line.turn)
            case lines.RestoredLine():
                self._turns.restore(line.turn)

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

    def _ask(self, parts: Sequence[TurnPart], parent: TurnId | None, id: TurnId) -> None:
        """Add a question; after the last reply if its parent was lost."""
        if parent is not None and not isinstance(self._turns.find(parent), Reply):
            last = self._turns.last_reply
            parent = last.id if last else None
        self._turns.add_question(parts, parent, id)
        self._chat.unsent = ()

    def _begin(self, id: TurnId) -> Recording:
        self._kept[id] = _KeptRounds()
        return Recording(self._terms, self._kept[id])

    def _end(self, line: lines.EndLine | lines.GoesOnLine) -> None:
        turn = self._turns.find(line.of)
        if not isinstance(turn, Reply | Comparison):
            return
        if isinstance(line, lines.GoesOnLine):
            turn.recording.end, turn.recording.went_on = None, True
        else:
            if line.of in self._kept:
                kept = self._kept[line.of]
                kept.settled = (line.settled, len(kept.pieces)) if line.settled else None
            turn.recording.changed.update(line.changed)
            turn.recording.speculation_stopped = line.speculation_stopped
            if line.end is not None:
                turn.recording.finish(line.end, line.stats)


def _is_unanswered(turn: Turn) -> bool:
    if isinstance(turn, Question):
        return True
    return turn.recording.end is None and not (turn.text or turn.reasoning)

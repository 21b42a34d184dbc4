"""Takes over the chats of earlier versions: files of JSON lines in the folders `chats` and `trash`
beside the store. Those of `chats` stay where they are. Nothing writes such files any more.

A line is the header of the file, or says what happened in the chat: a question, a reply that began,
its rounds about once a second, its end. Lines name the turn that they belong to by its id, so that
a lost line costs no other.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from eaglechat.chat.conversation.turns import Question, Reply, TurnError, TurnId
from eaglechat.chat.recorder import ChatRecorder
from eaglechat.chat.recording import Recording, Terms, TurnPart, text_alone
from eaglechat.chat.saved_chat import ChatHeader, SavedChat
from eaglechat.chat.store import ChatStore, transaction
from eaglechat.chat.writing.question import typed
from eaglechat.wire.records import (
    AutoDraft,
    AutoReason,
    DraftToken,
    Likely,
    Origin,
    Part,
    ReplyEnd,
    Round,
    RoundTimings,
    Token,
    text_in,
)
from eaglechat.wire.stats import SpeculationStats

_VERSION = 2
_DELETED_NAME = re.compile(r"(\d+)\.(.+)")
"""The name of a file in `trash`: when it was deleted, in milliseconds since 1970, and its name
before."""
_MOST_NAMED = 5
"""Files that cannot be read, named in a sentence at most."""
_Count = Annotated[int, Meta(ge=0, le=2**53)]


@dataclass(frozen=True)
class Progress:
    """How many of the chats that were to be taken over were."""

    done: int
    total: int


def take_over(store: ChatStore) -> Iterator[Progress]:
    """Take over every chat that was not, those used last first. The store says how many there were,
    and which cannot be read. Raises OSError."""
    folder, trash = store.file.with_name("chats"), store.file.with_name("trash")
    there = [file for place in (folder, trash) for file in place.glob("*.jsonl") if file.is_file()]
    if not there:
        return
    # Two programs that are started at once would take over each chat twice.
    with store.alone("older"):
        with store.opened() as db:
            done = {name for (name,) in db.execute("SELECT file FROM taken_over")}
        files = [file for file in there if _named(file) not in done]
        files.sort(key=lambda file: file.stat().st_mtime, reverse=True)
        unreadable = []
        for number, file in enumerate(files):
            yield Progress(number, len(files))
            try:
                _take_over(store, file)
            except ValueError as error:
                unreadable.append(f"{file.name} ({error})")
    if files:
        store.say(_taken_over(len(files), unreadable, folder))
        yield Progress(len(files), len(files))


def _taken_over(total: int, unreadable: Sequence[str], folder: Path) -> str:
    count = total - len(unreadable)
    said = f"Took over {count} {'chat' if count == 1 else 'chats'} of an earlier version. "
    said += f"You may delete {folder}: nothing reads it any more."
    if unreadable:
        more = len(unreadable) - _MOST_NAMED
        names = ", ".join(unreadable[:_MOST_NAMED]) + (f", and {more} more" if more > 0 else "")
        said += f" These cannot be read, and stay there: {names}."
    return said


def _take_over(store: ChatStore, file: Path) -> None:
    """Raises ValueError if the file is no chat."""
    in_trash = _DELETED_NAME.fullmatch(file.stem) if file.parent.name == "trash" else None
    name = in_trash[2] if in_trash else file.stem
    used = file.stat().st_mtime
    problem: ValueError | None = None
    with store.opened() as db:
        # If the program was killed behind the first `keep`, the chat is there and has no mark yet.
        is_there = db.execute("SELECT 1 FROM chat WHERE name = ?", (name,)).fetchone()
        try:
            if in_trash or not is_there:
                chat = chat_in(name, _content(file))
                recorder = ChatRecorder(store, chat, _raise)
                recorder.keep()
                recorder.left(chat.unsent)
                name = recorder.name
        except ValueError as error:
            problem = error
        with transaction(db):
            deleted = int(in_trash[1]) / 1000 if in_trash else None
            when = "UPDATE chat SET used = ?, deleted = ? WHERE name = ?"
            db.execute(when, (used, deleted, name))
            db.execute("INSERT INTO taken_over VALUES (?)", (_named(file),))
    if problem is not None:
        raise problem
    if in_trash:
        # What was deleted must not outlive the days for which it can be restored.
        file.unlink()


def _named(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ValueError(error.strerror) from error


def _raise(_file: Path, why: OSError) -> None:
    raise why


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """Any line; what it has depends on its type."""

    type: str
    id: _Count = 0
    of: _Count = 0
    turn: _Count = 0
    parent: _Count | None = None
    question: _Count | None = None
    parts: tuple[TurnPart, ...] = ()
    terms: Terms = Terms()
    text: str = ""
    reasoning: str = ""
    data: str = ""
    end: ReplyEnd | None = None
    stats: SpeculationStats | None = None
    changed: tuple[str, ...] = ()
    speculation_stopped: str | None = None
    settled: str | None = None
    role: str = ""
    title: str = ""
    pinned: bool = False
    # Of the header.
    version: int = 1
    created: str = ""
    pair: str = ""
    target: str = ""
    draft: str | None = None
    server: str = ""


_decoder = msgspec.json.Decoder(_Line)


def chat_in(name: str, raw: bytes) -> SavedChat:
    """The chat in the content of its file. Damaged lines are skipped. Raises ValueError if it is no
    chat."""
    first, *others = raw.split(b"\n")
    header = _decoded(first)
    if header is None or header.type != "chat":
        raise ValueError("it does not begin like a chat")
    if header.version != _VERSION:
        raise ValueError(f"its format is version {header.version}")
    reader = _Reader(name, header)
    for line in map(_decoded, others):
        if line is not None:
            with suppress(TurnError):
                reader.take(line)
    return reader.finished()


def _decoded(raw: bytes) -> _Line | None:
    """A line; None if it is cut short or damaged."""
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class _Reader:
    """Builds a chat from its lines, in order. One that does not fit the tree, because others were
    lost, raises TurnError."""

    def __init__(self, name: str, header: _Line) -> None:
        self._chat = SavedChat(
            name,
            ChatHeader(
                created=header.created,
                pair=header.pair,
                target=header.target,
                draft=header.draft,
                server=header.server,
            ),
        )
        self._turns = self._chat.turns
        self._terms = Terms(pair=header.pair, target=header.target, draft=header.draft)
        self._replies: dict[TurnId, _Reply] = {}
        """Deleted ones too."""

    def take(self, line: _Line) -> None:
        turns = self._turns
        match line.type:
            case "question":
                self._ask(line.parts, line.parent, line.id)
            case "reply":
                parent = line.parent or 0
                if not isinstance(turns.find(parent), Question):
                    self._ask((), parent, parent)
                reply = _Reply(Recording(self._terms))
                turns.add(Reply(line.id, parent, reply.recording))
                turns.choose(line.id)
                self._replies[line.id] = reply
            case "rounds" | "goes_on" | "end":
                if line.of in self._replies:
                    self._replies[line.of].take(line)
            case "chosen":
                turns.choose(line.turn)
            case "deleted":
                turns.delete(line.turn)
            case "restored":
                turns.restore(line.turn)
            case "terms":
                self._terms = line.terms
            case _:
                self._take_about_chat(line)

    def _take_about_chat(self, line: _Line) -> None:
        chat = self._chat
        match line.type:
            case "window":
                chat.first_question = line.question
            case "unsent":
                chat.unsent = line.parts or typed(line.text)
            case "role":
                chat.role = line.role
            case "title":
                chat.title = line.title
            case "pinned":
                chat.pinned = line.pinned

    def _ask(self, parts: Sequence[TurnPart], parent: TurnId | None, id: TurnId) -> None:
        """Add a question; after the last reply if its parent was lost."""
        if parent is not None and not isinstance(self._turns.find(parent), Reply):
            last = self._turns.last_reply
            parent = last.id if last else None
        self._turns.add(Question(id, parent, tuple(parts)))
        self._turns.choose(id)
        self._chat.unsent = ()

    def finished(self) -> SavedChat:
        for reply in self._replies.values():
            for round_ in reply.rounds:
                reply.recording.add(round_)
        self._chat.give_back_unanswered()
        return self._chat


@dataclass
class _Reply:
    """A reply as far as its lines were read."""

    recording: Recording
    answer: str = ""
    reasoning: str = ""
    rounds: list[Round] = field(default_factory=list)

    def take(self, line: _Line) -> None:
        if line.type == "goes_on":
            self.recording.end = None
        elif line.type == "rounds":
            self.answer += line.text
            self.reasoning += line.reasoning
            self.rounds += _unpacked(line.data, line.text, line.reasoning)
        else:
            if line.settled:
                self.rounds = _unpacked(line.settled, self.answer, self.reasoning)
            self.recording.changed.update(line.changed)
            self.recording.speculation_stopped = line.speculation_stopped
            if line.end is not None:
                self.recording.finish(line.end, line.stats)


# The rounds in a line: compressed columns of numbers, in base64


_ORIGINS = tuple(Origin)
_REASONS = {reason.value: reason for reason in AutoReason}
_PARTS = (Part.ANSWER, Part.REASONING, None)
_TIMES = tuple(field.name for field in fields(RoundTimings) if field.name != "total_ms")
_TIME_STEPS = 100
_PROBABILITY_STEPS = 250
_LIKELY_STEPS = 10_000
_RAW_DEFLATE = -15
_UNREPORTED = -1
_UNREPORTED_PROBABILITY = 255


class _Columns(msgspec.Struct, array_like=True, kw_only=True):
    """Columns over rounds, over emitted tokens or over drafted tokens.

    New columns come last and have a default, so that older files can be read.
    """

    first: int
    n_past: int
    moved: list[int]
    """n_past minus that of the round before and the emitted tokens; not 0 if turns left the
    context."""
    n_draft_max: list[int]
    n_tokens: list[int]
    n_drafted: list[int]
    n_tested: list[int]
    n_accepted: list[int]
    times: list[int | None]
    """All fields of RoundTimings but the total, of the first round, then of the second, and so
    on."""
    other_times: list[int]
    """The total of each round minus these."""
    ids: list[int]
    lengths: list[int]
    origins: list[int]
    draft_ids: list[int | None]
    """None: the same as the token emitted at this position of the round; -1: not reported."""
    draft_lengths: list[int | None]
    """None: the text of the token emitted at this position; -1: not reported."""
    draft_text: str
    probabilities: bytes
    auto: list[tuple[str, int, int] | None]
    """Reason, milliseconds lost against plain decoding, and milliseconds that may be lost."""
    expected: list[float]
    plain_error: float
    parents: list[int]
    """Of drafted tokens, minus the parents of a chain: all 0 if the draft is a chain."""
    drafters: list[str]
    """Names; the empty one stands for the target."""
    drafted_by: list[int]
    emitted_by: list[int]
    parts: list[int]
    """Of emitted tokens, as index in `_PARTS`."""
    markers: str
    """The text of tokens that are in no part of the reply."""
    given: list[tuple[int, tuple[int, ...]]]
    """Index of the round, and the ids of `Round.given`."""
    likely: list[tuple[int, list[list[tuple[int, str, int, int]]]]] = []
    """Index of the round, and for each of its tokens the likeliest candidates: id, text,
    probability and chance."""
    unused: list[int] = []
    """Keeps the place of a column that older files have."""
    trees: list[int] = []
    """Indices of the rounds for which auto chose a tree."""
    names_of_times: tuple[str, ...] = ("draft_ms", "verify_ms", "process_ms", "sample_ms")
    """The fields of `RoundTimings` that `times` has; unknown ones are skipped."""
    plain_checks: list[int] = []
    """Indices of the rounds that were plain to measure plain decoding."""


_decoder_of_columns = msgspec.msgpack.Decoder(_Columns)


def _unpacked(data: str, answer: str, reasoning: str) -> list[Round]:
    """Rounds that wrote these texts. If they are damaged, one round of which only the text is
    known."""
    try:
        inflated = zlib.decompress(base64.b64decode(data, validate=True), wbits=_RAW_DEFLATE)
        columns = _decoder_of_columns.decode(inflated)
        rounds = [*_rounds(columns, (answer, reasoning, columns.markers))]
        is_whole = all(
            text_in(rounds, part) == text
            for part, text in zip(Part, (reasoning, answer), strict=True)
        )
    except (ValueError, zlib.error, StopIteration, IndexError, RuntimeError, TypeError):
        is_whole = False
    return rounds if is_whole else [text_alone(answer, reasoning)]


def _rounds(columns: _Columns, texts: tuple[str, str, str]) -> Iterator[Round]:
    """`texts` are in the order of `_PARTS`."""
    written = [
        _cut(text, [n for n, p in zip(columns.lengths, columns.parts, strict=True) if p == part])
        for part, text in enumerate(texts)
    ]
    given, likely = dict(columns.given), dict(columns.likely)
    lengths = [length for length in columns.draft_lengths if length is not None and length >= 0]
    guesses = _cut(columns.draft_text, lengths)
    first_token = first_drafted = 0
    n_past = columns.n_past
    for index, n_tokens in enumerate(columns.n_tokens):
        n_drafted = columns.n_drafted[index]
        tokens = tuple(
            Token(
                id=None if columns.ids[place] == _UNREPORTED else columns.ids[place],
                text=next(written[columns.parts[place]]),
                origin=_ORIGINS[columns.origins[place]],
                drafter=columns.drafters[columns.emitted_by[place]] or None,
                part=_PARTS[columns.parts[place]],
            )
            for place in range(first_token, first_token + n_tokens)
        )
        if index:
            n_past += columns.moved[index - 1] + n_tokens
        yield Round(
            index=columns.first + index,
            n_draft_max=columns.n_draft_max[index],
            drafted=tuple(
                _drafted(columns, first_drafted + place, place, tokens, guesses)
                for place in range(n_drafted)
            ),
            n_tested=columns.n_tested[index],
            n_accepted=columns.n_accepted[index],
            tokens=tokens,
            n_past=n_past,
            timings=_timings(columns, index),
            auto=_auto(columns, index),
            given=given.get(index, ()),
            likely=tuple(
                tuple(
                    Likely(id, text, probability / _LIKELY_STEPS, chance / _LIKELY_STEPS)
                    for id, text, probability, chance in place
                )
                for place in likely.get(index, ())
            ),
            is_plain_check=index in columns.plain_checks,
        )
        first_token += n_tokens
        first_drafted += n_drafted


def _drafted(
    columns: _Columns, index: int, place: int, emitted: Sequence[Token], guesses: Iterator[str]
) -> DraftToken:
    """The drafted token at position `place` of a round that emitted these tokens."""
    id: int | None = columns.draft_ids[index]
    text: str | None = None
    length, probability = columns.draft_lengths[index], columns.probabilities[index]
    if length is None:
        text = emitted[place].text
    elif length != _UNREPORTED:
        text = next(guesses)
    return DraftToken(
        id=emitted[place].id if id is None else None if id == _UNREPORTED else id,
        text=text,
        probability=None
        if probability == _UNREPORTED_PROBABILITY
        else probability / _PROBABILITY_STEPS,
        parent=columns.parents[index] + place - 1,
        drafter=columns.drafters[columns.drafted_by[index]],
    )


def _timings(columns: _Columns, index: int) -> RoundTimings:
    names = columns.names_of_times
    steps = columns.times[len(names) * index : len(names) * (index + 1)]
    times = {
        name: None if n is None else n / _TIME_STEPS
        for name, n in zip(names, steps, strict=True)
        if name in _TIMES
    }
    total = (sum(n or 0 for n in steps) + columns.other_times[index]) / _TIME_STEPS
    return RoundTimings(**times, total_ms=total)


def _auto(columns: _Columns, index: int) -> AutoDraft | None:
    cells = columns.auto[index]
    reason = _REASONS.get(cells[0]) if cells else None
    if cells is None or reason is None:
        return None
    is_last = index == len(columns.auto) - 1
    return AutoDraft(
        n=columns.n_draft_max[index],
        reason=reason,
        tokens_per_second=tuple(columns.expected) if is_last else (),
        plain_error=columns.plain_error if is_last else 0.0,
        lost_ms=cells[1],
        allowed_ms=cells[2],
        shape="tree" if index in columns.trees else "chain",
    )


def _cut(text: str, lengths: Sequence[int]) -> Iterator[str]:
    """Cut a text into pieces of these lengths."""
    end = 0
    for length in lengths:
        start, end = end, end + length
        yield text[start:end]

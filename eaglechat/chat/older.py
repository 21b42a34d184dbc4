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
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from eaglechat.chat.packing import cut
from eaglechat.chat.recorder import ChatRecorder
from eaglechat.chat.recording import Recording, Terms, TurnPart, text_alone
from eaglechat.chat.saved_chat import ChatHeader, SavedChat
from eaglechat.chat.store import ChatStore, transaction
from eaglechat.chat.turns import Branch, Question, Reply, TurnError, TurnId
from eaglechat.chat.writing.question import typed
from eaglechat.wire.records import (
    AutoDraft,
    AutoReason,
    DraftShape,
    DraftToken,
    Likely,
    Origin,
    Part,
    ReplyEnd,
    Round,
    RoundTimings,
    Token,
)
from eaglechat.wire.stats import SpeculationStats

_VERSION = 2
_DELETED_NAME = re.compile(r"(\d+)\.(.+)")
"""The name of a file in `trash`: when it was deleted, in milliseconds since 1970, and its name
before."""
_MOST_NAMED = 5
"""Files that cannot be read, named in a sentence at most."""
_Count = Annotated[int, Meta(ge=0, le=2**53)]


def take_over(
    store: ChatStore, step: Callable[[int, int], object] = lambda _done, _total: None
) -> int:
    """Take over every chat that was not, those used last first; return how many there were. The
    store says so, and which cannot be read. `step` hears how many of how many were looked at.
    Raises OSError."""
    folder, trash = store.file.with_name("chats"), store.file.with_name("trash")
    there = [file for place in (folder, trash) for file in place.glob("*.jsonl") if file.is_file()]
    if not there:
        return 0
    unreadable = []
    with store.opened() as db:
        done = {name for (name,) in db.execute("SELECT file FROM taken_over")}
    files = [file for file in there if _named(file) not in done]
    files.sort(key=lambda file: file.stat().st_mtime, reverse=True)
    for number, file in enumerate(files, 1):
        if problem := _take_over(store, file):
            unreadable.append(f"{file.name} ({problem})")
        step(number, len(files))
    if files:
        count = len(files) - len(unreadable)
        said = f"Took over {count} {'chat' if count == 1 else 'chats'} of an earlier version. "
        said += f"You may delete {folder}: nothing reads it any more."
        if unreadable:
            more = len(unreadable) - _MOST_NAMED
            names = ", ".join(unreadable[:_MOST_NAMED]) + (f", and {more} more" if more > 0 else "")
            said += f" These cannot be read, and stay there: {names}."
        store.say(said)
    return len(files)


def _take_over(store: ChatStore, file: Path) -> str:
    """What is wrong with the file, if it is no chat."""
    in_trash = _DELETED_NAME.fullmatch(file.stem) if file.parent.name == "trash" else None
    chat, problem, used = None, "", file.stat().st_mtime
    try:
        chat = chat_in(in_trash[2] if in_trash else file.stem, file.read_bytes())
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
    with store.opened() as db, transaction(db):
        taken = db.execute("INSERT OR IGNORE INTO taken_over VALUES (?)", (_named(file),))
        # Another program, which was started at the same time, may have taken it over.
        if chat is not None and taken.rowcount:
            ChatRecorder(store, chat).write(db, owner="")
            deleted = int(in_trash[1]) / 1000 if in_trash else None
            when = "UPDATE chat SET used = ?, deleted = ? WHERE name = ?"
            db.execute(when, (used, deleted, chat.name))
    if in_trash and chat is not None:
        # What was deleted must not outlive the days for which it can be restored.
        file.unlink(missing_ok=True)
    return problem


def _named(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"


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
    chat = SavedChat(name, msgspec.convert(header, ChatHeader, from_attributes=True))
    terms = Terms(pair=header.pair, target=header.target, draft=header.draft)
    deleted: dict[TurnId, Branch] = {}
    for line in filter(None, map(_decoded, others)):
        # One that does not fit the tree, because others were lost, is left out.
        with suppress(TurnError, KeyError):
            if line.type == "terms":
                terms = line.terms
            elif line.of:
                _take_of_reply(chat.turns.reply(line.of).recording, line)
            else:
                _take_of_chat(chat, line, terms, deleted)
    chat.give_back_unanswered()
    return chat


def _decoded(raw: bytes) -> _Line | None:
    """A line; None if it is cut short or damaged."""
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _take_of_chat(
    chat: SavedChat, line: _Line, terms: Terms, deleted: dict[TurnId, Branch]
) -> None:
    turns = chat.turns
    match line.type:
        case "question":
            parent = line.parent
            if parent is not None and not isinstance(turns.find(parent), Reply):
                # Its parent was lost.
                parent = turns.last_reply.id if turns.last_reply else None
            turns.choose(turns.add(Question(line.id, parent, line.parts)).id)
            chat.unsent = ()
        case "reply":
            question = line.parent or 0
            if not isinstance(turns.find(question), Question):
                # Its question was lost.
                parent = turns.last_reply.id if turns.last_reply else None
                turns.add(Question(question, parent, ()))
                chat.unsent = ()
            turns.choose(turns.add(Reply(line.id, question, Recording(terms))).id)
        case "chosen":
            turns.choose(line.turn)
        case "deleted":
            branch = turns.delete(line.turn)
            deleted[branch[0].id] = branch
        case "restored":
            turns.restore(deleted.pop(line.turn))
        case "window":
            chat.first_question = line.question
        case "unsent":
            chat.unsent = line.parts or typed(line.text)
        case "role" | "title" | "pinned":
            setattr(chat, line.type, getattr(line, line.type))


def _take_of_reply(recording: Recording, line: _Line) -> None:
    match line.type:
        case "goes_on":
            recording.end = None
        case "rounds":
            for round_ in _unpacked(line.data, line.text, line.reasoning):
                recording.add(round_)
        case "end":
            if line.settled:
                texts = recording.written(Part.ANSWER), recording.written(Part.REASONING)
                recording.settle(_unpacked(line.settled, *texts))
            recording.speculation_stopped = line.speculation_stopped
            if line.end is not None:
                recording.finish(line.end, line.stats)


# The rounds in a line: compressed columns of numbers, in base64


_ORIGINS, _PARTS = tuple(Origin), (Part.ANSWER, Part.REASONING, None)
_REASONS = {reason.value for reason in AutoReason}
_TIMES = [name for name in RoundTimings.__struct_fields__ if name != "total_ms"]
_TIME_STEPS, _PROBABILITY_STEPS, _LIKELY_STEPS = 100, 250, 10_000
_RAW_DEFLATE = -15
_UNREPORTED, _UNREPORTED_PROBABILITY = -1, 255
_COLUMNS = (
    "first", "n_past", "moved", "n_draft_max", "n_tokens", "n_drafted", "n_tested", "n_accepted",
    "times", "other_times", "ids", "lengths", "origins", "draft_ids", "draft_lengths",
    "draft_text", "probabilities", "auto", "expected", "plain_error", "parents", "drafters",
    "drafted_by", "emitted_by", "parts", "markers", "given",
)  # fmt: skip
"""Over rounds, over emitted tokens (from `ids`) or over drafted tokens (from `draft_ids`, and
`parents` and `drafted_by`). `moved` is `n_past` minus that of the round before and the emitted
tokens; a text is cut into the tokens' `lengths`; `draft_ids` and `draft_lengths` are None where the
token is the one emitted at this place of the round; `parents` are minus those of a chain; `auto`
has the reason, and the milliseconds that were lost and that may be."""
_LATER_COLUMNS: dict[str, Any] = {
    "likely": (), "unused": (), "trees": (),
    "names_of_times": ("draft_ms", "verify_ms", "process_ms", "sample_ms"), "plain_checks": (),
}  # fmt: skip
"""Those that files may lack, with what then holds. All but `names_of_times` begin with, or are,
indices of rounds."""


def _unpacked(data: str, answer: str, reasoning: str) -> list[Round]:
    """Rounds that wrote these texts. If they are damaged, one round of which only the text is
    known."""
    try:
        inflated = zlib.decompress(base64.b64decode(data, validate=True), wbits=_RAW_DEFLATE)
        values = msgspec.msgpack.decode(inflated)
        known = zip((*_COLUMNS, *_LATER_COLUMNS), values, strict=False)
        columns = SimpleNamespace(**{**_LATER_COLUMNS, **dict(known)})
        records = msgspec.to_builtins([*_rounds(columns, answer, reasoning)])
        rounds = msgspec.convert(records, list[Round])
        tokens = [token for round_ in rounds for token in round_.tokens]
        is_whole = all(
            "".join(token.text for token in tokens if token.part is part) == text
            for part, text in ((Part.REASONING, reasoning), (Part.ANSWER, answer))
        )
    except (ValueError, zlib.error, LookupError, TypeError, AttributeError):
        is_whole = False
    return rounds if is_whole else [text_alone(answer, reasoning)]


def _rounds(columns: Any, answer: str, reasoning: str) -> Iterator[Round]:
    """The rounds, of values that nothing has checked."""
    texts, ends = (answer, reasoning, columns.markers), [0] * len(_PARTS)
    emitted = zip(
        columns.ids, columns.lengths, columns.origins, columns.emitted_by, columns.parts,
        strict=True,
    )  # fmt: skip
    lengths = [max(length or 0, 0) for length in columns.draft_lengths]
    drafted = zip(
        columns.draft_ids, columns.draft_lengths,
        cut(columns.draft_text, lengths),
        columns.probabilities, columns.parents, columns.drafted_by,
        strict=True,
    )  # fmt: skip
    given, likely, drafters = dict(columns.given), dict(columns.likely), columns.drafters
    n_past, names = columns.n_past, columns.names_of_times
    for index, n_tokens in enumerate(columns.n_tokens):
        tokens, drafts = list[Token](), list[DraftToken]()
        for id, length, origin, by, part in islice(emitted, n_tokens):
            start, ends[part] = ends[part], ends[part] + length
            known, text = None if id == _UNREPORTED else id, texts[part][start : ends[part]]
            tokens.append(Token(known, text, _ORIGINS[origin], drafters[by] or None, _PARTS[part]))
        of_round = islice(drafted, columns.n_drafted[index])
        for place, (id, length, text, probability, parent, by) in enumerate(of_round):
            drafts.append(
                DraftToken(
                    tokens[place].id if id is None else None if id == _UNREPORTED else id,
                    tokens[place].text if length is None else None if length < 0 else text,
                    None
                    if probability == _UNREPORTED_PROBABILITY
                    else probability / _PROBABILITY_STEPS,
                    parent + place - 1,
                    drafters[by],
                )
            )
        n_past += columns.moved[index - 1] + n_tokens if index else 0
        steps = columns.times[len(names) * index : len(names) * (index + 1)]
        times = {
            name: None if step is None else step / _TIME_STEPS
            for name, step in zip(names, steps, strict=True)
        }
        total = sum(step or 0 for step in steps) + columns.other_times[index]
        auto = None
        shape: DraftShape = "tree" if index in columns.trees else "chain"
        if columns.auto[index] and columns.auto[index][0] in _REASONS:
            reason, lost_ms, allowed_ms = columns.auto[index]
            # Only the last round of a line has what was expected of each length.
            expected = columns.expected if index == len(columns.auto) - 1 else ()
            n = columns.n_draft_max[index]
            auto = AutoDraft(n, reason, expected, lost_ms, allowed_ms, shape)
        yield Round(
            columns.first + index,
            columns.n_draft_max[index],
            tuple(drafts),
            columns.n_tested[index],
            columns.n_accepted[index],
            tuple(tokens),
            n_past,
            RoundTimings(**{**dict.fromkeys(_TIMES), **times, "total_ms": total / _TIME_STEPS}),
            auto=auto,
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

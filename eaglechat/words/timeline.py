"""The entries that the transcript shows of a chat, in order, and its notices in words. A command in
braces, such as `{chat.stop}`, stands for its key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from eaglechat.chat import refusals
from eaglechat.chat.recording import Recording
from eaglechat.chat.session import ChatSession, Notice, NoticeKind, Opened
from eaglechat.chat.turns import Question, Reply, Turn, TurnId
from eaglechat.chat.writing.question import shown
from eaglechat.hub.local.pair import Pair
from eaglechat.links.crashes import without
from eaglechat.wire.protocol import Hello, PairInfo
from eaglechat.wire.records import Part
from eaglechat.wire.worker import Died
from eaglechat.words import replies, wording

Kind = NoticeKind | Literal["reply", "thought", "window"]


@dataclass(frozen=True)
class Entry:
    """One entry of the transcript. `key` identifies it as long as the chat is open."""

    key: str
    kind: Kind
    text: str = ""
    recording: Recording | None = None
    """Set for replies."""
    note: str | None = None
    """The line below a recording; None while it is being written."""
    turn: TurnId | None = None
    """The turn that the entry shows, whole or in part."""
    place: tuple[int, int] | None = None
    """Its number among its siblings, from 1, and their count; only in the first entry of a turn
    that has siblings."""

    def below(self) -> str | None:
        """The note. What needs every round, which may be on disk, is made here, when the entry is
        drawn: the note of reasoning, and a reply's speed-up."""
        if self.recording is None or self.note is None:
            return self.note
        if self.kind == "thought":
            return replies.thought(self.recording.by_part.get(Part.REASONING))
        return replies.with_headline(self.recording, self.note)


def entries(session: ChatSession) -> Iterator[Entry]:
    """All entries of the chat."""
    yield from _notices(session, None)
    for turn in session.turns.path:
        if turn.id == session.chat.first_question and turn.parent is not None:
            yield Entry(f"window {turn.id}", "window")
        if isinstance(turn, Question):
            place = _place(session, turn)
            yield Entry(f"turn {turn.id}", "question", shown(turn.parts), turn=turn.id, place=place)
        else:
            yield from entries_of(session, turn)
            if (stopped := turn.recording.speculation_stopped) is not None:
                yield Entry(f"off {turn.id}", "warning", refusals.off(stopped))
        yield from _notices(session, turn.id)


def entries_of(session: ChatSession, turn: Reply) -> Iterator[Entry]:
    """The entries of a reply: its reasoning, and its answer once that has begun."""
    recording, is_over = turn.recording, not session.is_writing(turn)
    id, place = turn.id, _place(session, turn)
    if recording.has_reasoning:
        is_thought = is_over or recording.is_answering
        note = "" if is_thought else None
        yield Entry(
            f"thought {id}", "thought", recording=recording, note=note, turn=id, place=place
        )
        place = None
    if recording.is_answering or is_over or not recording.has_reasoning:
        note = replies.end_note(recording, session.n_ctx) if is_over else None
        yield Entry(f"turn {id}", "reply", recording=recording, note=note, turn=id, place=place)


def _place(session: ChatSession, turn: Turn) -> tuple[int, int] | None:
    siblings = session.turns.siblings(turn.id)
    return (siblings.index(turn.id) + 1, len(siblings)) if len(siblings) > 1 else None


def _notices(session: ChatSession, after: int | None) -> Iterator[Entry]:
    for notice in session.notices:
        if notice.after == after:
            yield Entry(f"notice {notice.id}", notice.kind, _text_of(notice))


def _text_of(notice: Notice) -> str:
    match notice.news:
        case Opened(pair, info, hello):
            return _greeting(info, pair, hello)
        case Died():
            return wording.died_in_chat(notice.news)
        case text:
            return wording.sentence(text) if notice.kind == "error" else text


def _greeting(info: PairInfo, pair: Pair, hello: Hello | None) -> str:
    """The first lines of a new chat: the loaded pair, and what its draft does."""
    where = ", ".join(info.devices) or "the CPU"
    without_it = f", {without(info.left_out)}" if info.left_out else ""
    loaded = f"Loaded in {info.load_ms / 1000:.1f} s on {where}{without_it}."
    if info.server:
        loaded = f"Connected to {info.server}."
    if info.untemplated:
        loaded = f"{loaded} {wording.sentence(info.untemplated)}"
    if info.speculation_off:
        return f"{loaded} {refusals.off(info.speculation_off)}"
    if info.server:
        return loaded
    if info.drafter is None:
        why = f" ({'; '.join(info.undrafted.values())})" if info.undrafted else ""
        return (
            f"{loaded} There is no draft{why}. Where the text repeats itself, n-grams guess what "
            f"followed before, and the target checks the guesses all at once. {pair.note}"
        ).rstrip()
    last, length = pair.note, pair.n_draft_max
    has_auto = hello is None or hello.can.own
    if has_auto and pair.source == "built-in" and isinstance(length, int) and length:
        last = (
            f"{pair.note} It drafts {wording.plural(length, 'token')} per round; {{chat.auto}} "
            "lets measurement choose the length."
        ).lstrip()
    guess = "the draft guesses" if info.drafter.file else "the model's own MTP heads guess"
    if len(info.drafters) > 1:
        names = " or ".join(wording.drafter(one.kind) for one in info.drafters)
        guess = f"{names} guess"
    return (
        f"{loaded} In every round {guess} a few tokens and the target checks them all at "
        f"once. In replies, the guesses it accepted have a colour of their own. {last}"
    ).rstrip()

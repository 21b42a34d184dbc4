"""A chat as its transcript shows it: one entry after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from eaglechat.chat import wording
from eaglechat.chat.comparing import compare
from eaglechat.chat.parties import NoticeKind
from eaglechat.chat.recording import Recording
from eaglechat.chat.session import ChatSession
from eaglechat.chat.turns import Comparison, Question, Reply

Kind = NoticeKind | Literal["reply", "comparison", "window"]


@dataclass(frozen=True)
class Entry:
    """`key` names it for as long as the chat is open: the same key is the same entry."""

    key: str
    kind: Kind
    text: str = ""
    recording: Recording | None = None
    """Of a reply or comparison."""
    note: str | None = None
    """What is said below a recording; None while it is being written."""


def entries(session: ChatSession) -> Iterator[Entry]:
    """From the first entry to the last."""
    yield from _notices(session, None)
    for turn in session.turns.path:
        if turn.id == session.first_question and turn.parent is not None:
            yield Entry(f"window {turn.id}", "window")
        if isinstance(turn, Question):
            yield Entry(f"turn {turn.id}", "question", turn.text)
        else:
            yield entry_of(session, turn)
            yield from _beside(session, turn)
        yield from _notices(session, turn.id)


def _beside(session: ChatSession, reply: Reply) -> Iterator[Entry]:
    """What belongs to a reply: that speculation stopped in it, and its comparisons."""
    if reply.recording.speculation_stopped is not None:
        text = f"Speculation is off: {reply.recording.speculation_stopped}"
        yield Entry(f"off {reply.id}", "warning", text)
    for comparison in session.turns.comparisons(reply.id):
        yield Entry(f"intro {comparison.id}", "information", wording.COMPARISON)
        entry = entry_of(session, comparison)
        yield entry
        if entry.note is not None:
            result = compare(reply.recording, comparison.recording)
            text = wording.comparison_result(result) if result else wording.NOTHING_COMPARED
            yield Entry(f"result {comparison.id}", "information", text)


def entry_of(session: ChatSession, turn: Reply | Comparison) -> Entry:
    """The entry of a reply or comparison."""
    is_comparison = isinstance(turn, Comparison)
    is_running = session.running is not None and session.running.turn is turn
    return Entry(
        f"turn {turn.id}",
        "comparison" if is_comparison else "reply",
        recording=turn.recording,
        note=None if is_running else _note(session, turn),
    )


def _note(session: ChatSession, turn: Reply | Comparison) -> str:
    return wording.end_note(
        turn.recording, session.n_ctx, is_comparison=isinstance(turn, Comparison)
    )


def _notices(session: ChatSession, after: int | None) -> Iterator[Entry]:
    for notice in session.notices:
        if notice.after == after:
            yield Entry(f"notice {notice.id}", notice.kind, notice.text)

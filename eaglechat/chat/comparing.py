"""A reply against plain decoding of the same prompt: what was measured, and where they part."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from eaglechat.chat.conversation.turns import Turns
from eaglechat.chat.recording import Recording, Terms
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import FinishReason, Origin, Token


@dataclass(frozen=True)
class Fork:
    """Where two token sequences part: the index of the first token that differs, and the text of
    both there, or None where one had ended."""

    index: int
    speculative: str | None
    plain: str | None


@dataclass(frozen=True)
class Compared:
    """A reply beside plain decoding of the same prompt, as measured."""

    speculative_tokens_per_second: float
    plain_tokens_per_second: float
    speculative_tokens: int
    plain_tokens: int
    fork: Fork | None
    changed: tuple[str, ...]
    plain_cancelled: bool

    @property
    def speed_up(self) -> float:
        """Speculative over plain tokens per second."""
        return self.speculative_tokens_per_second / self.plain_tokens_per_second


def latest_compared(turns: Turns) -> Compared | None:
    """The last reply of a chat beside its latest comparison, if it has one."""
    reply = turns.last_reply
    if reply is None or not (comparisons := turns.comparisons(reply.id)):
        return None
    return compare(reply.recording, comparisons[-1].recording)


def cannot_compare(reply: Recording | None, off: str | None = None) -> str | None:
    """Why a reply cannot be compared with plain decoding, or None if it can; `off` is why nothing
    would be drafted now."""
    if reply is None:
        return "There is no reply yet to compare with."
    if reply.end is None:
        return "The last reply was cut off, so its sampling is not known."
    if reply.went_on:
        return "The last reply was stopped and continued, so no single run repeats it."
    if not reply.end.tokens:
        return "The last reply is empty: there is nothing to compare."
    if not reply.speculated and all(token.origin is not Origin.UNKNOWN for token in _tokens(reply)):
        why = off or reply.speculation_stopped or _undrafted(reply.terms)
        return f"The last reply was already decoded plainly: {why}."
    return None


def plain_terms(reply: Recording) -> Terms:
    """What has to be asked for to get the same reply without speculation: the seed it was given,
    and the length at which it was stopped."""
    end = reply.end
    assert end is not None
    was_stopped = end.finish_reason is FinishReason.CANCELLED
    return msgspec.structs.replace(
        reply.terms,
        sampling=msgspec.structs.replace(reply.terms.sampling, seed=end.seed),
        speculation=Speculation(enabled=False, n_draft_max=0),
        max_tokens=end.tokens if was_stopped else reply.terms.max_tokens,
    )


def compare(reply: Recording, plain: Recording) -> Compared | None:
    """What the two show; None where one of them did not end, or has no speed."""
    if reply.end is None or plain.end is None:
        return None
    known = _compared.get(plain)
    if known is None or known[0]() is not reply:
        known = _compared[plain] = weakref.ref(reply), _compare_ended(reply, plain)
    return known[1]


_compared: weakref.WeakKeyDictionary[Recording, tuple[weakref.ref[Recording], Compared | None]] = (
    weakref.WeakKeyDictionary()
)
"""By the plain reply. Weak: the recordings of a closed chat go with it."""


def _compare_ended(reply: Recording, plain: Recording) -> Compared | None:
    assert reply.end is not None
    assert plain.end is not None
    speculative_rate, plain_rate = reply.end.tokens_per_second, plain.end.tokens_per_second
    if not speculative_rate or not plain_rate:
        return None
    return Compared(
        speculative_tokens_per_second=speculative_rate,
        plain_tokens_per_second=plain_rate,
        speculative_tokens=reply.end.tokens,
        plain_tokens=plain.end.tokens,
        fork=first_fork(reply, plain),
        changed=tuple(sorted(reply.changed)),
        plain_cancelled=plain.end.finish_reason is FinishReason.CANCELLED,
    )


def first_fork(reply: Recording, plain: Recording) -> Fork | None:
    """Where the tokens of two recordings part, or None if they never do as far as both go.

    One that was cut off (cancelled, out of length or context) says nothing about what would have
    come next, so its end is no fork.
    """
    ours, theirs = _tokens(reply), _tokens(plain)
    if any(token.id is None for token in (*ours, *theirs)):
        return _fork_of_texts(reply, plain)
    for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one.id != other.id:
            return Fork(index, _shown(one), _shown(other))
    if len(ours) == len(theirs):
        return None
    shared = min(len(ours), len(theirs))
    shorter, rest = (reply, theirs[shared:]) if len(ours) == shared else (plain, ours[shared:])
    if not _ended_by_itself(shorter):
        return None
    more = _shown(rest[0])
    return Fork(shared, *((None, more) if shorter is reply else (more, None)))


def _fork_of_texts(reply: Recording, plain: Recording) -> Fork | None:
    """The same where an engine reports no ids: it may send the text of several tokens at once."""
    ours, theirs = _tokens(reply), _tokens(plain)
    one, other = ("".join(token.text for token in tokens) for tokens in (ours, theirs))
    if one == other:
        return None
    pairs = enumerate(zip(one, other, strict=False))
    shared = next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
    for text, recording in (one, reply), (other, plain):
        if shared == len(text) and not _ended_by_itself(recording):
            return None
    index, begin, end = _token_at(ours, shared)
    _, _, end_of_other = _token_at(theirs, shared)
    return Fork(index, one[begin:end] or None, other[begin:end_of_other] or None)


def _token_at(tokens: Sequence[Token], place: int) -> tuple[int, int, int]:
    """Which token writes the character in this place, where its text begins and where it ends."""
    begin = 0
    for index, token in enumerate(tokens):
        if place < begin + len(token.text):
            return index, begin, begin + len(token.text)
        begin += len(token.text)
    return len(tokens), begin, begin


def _ended_by_itself(recording: Recording) -> bool:
    return recording.end is not None and recording.end.finish_reason is FinishReason.STOP


def _tokens(recording: Recording) -> list[Token]:
    return [token for round_ in recording.rounds for token in round_.tokens]


def _undrafted(terms: Terms) -> str:
    """Why a reply was decoded plainly that a draft could go with, now at least."""
    speculation = terms.speculation
    if not terms.engine and speculation.enabled and speculation.n_draft_max == AUTO:
        return "drafting was not expected to be faster; set n_draft_max by hand to draft anyway"
    return "ask again to have it drafted"


def _shown(token: Token) -> str:
    return token.text or f"token {token.id}"

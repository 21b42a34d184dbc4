"""A reply compared with plain decoding of the same prompt: speeds and first different token."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import msgspec

from eaglechat.chat.conversation.turns import Turns
from eaglechat.chat.recording import Recording, Terms
from eaglechat.chat.refusals import Off
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import FinishReason, Origin, Token


class CannotCompare(Enum):
    """Why a reply cannot be compared with plain decoding."""

    NO_REPLY = auto()
    CUT_OFF = auto()
    """Its sampling is not known."""
    CONTINUED = auto()
    """No single run repeats it."""
    EMPTY = auto()


class NotDrafted(Enum):
    """Why a reply was decoded plainly although there is something to draft with now."""

    NOT_FASTER = auto()
    """Auto did not expect drafting to be faster."""
    OTHER_CONTROLS = auto()
    """It was written with other controls than those of now."""


@dataclass(frozen=True)
class AlreadyPlain:
    """The reply to compare was itself decoded plainly."""

    why: Off | NotDrafted | str


@dataclass(frozen=True)
class Fork:
    """The first token at which two replies differ: its index, and its text in both, or its id if it
    has no text. None: that reply ended before it."""

    index: int
    speculative: str | int | None
    plain: str | int | None


@dataclass(frozen=True)
class Compared:
    """A reply and plain decoding of the same prompt, as measured."""

    speculative_tokens_per_second: float
    plain_tokens_per_second: float
    speculative_tokens: int
    plain_tokens: int
    fork: Fork | None
    changed: tuple[str, ...]
    """Names of controls that were changed while the reply was written."""
    plain_cancelled: bool

    @property
    def speed_up(self) -> float:
        """Speculative tokens per second divided by plain ones."""
        return self.speculative_tokens_per_second / self.plain_tokens_per_second


def latest_compared(turns: Turns) -> Compared | None:
    """The last reply of a chat and its latest comparison; None if it has none."""
    reply = turns.last_reply
    if reply is None or not (comparisons := turns.comparisons(reply.id)):
        return None
    return compare(reply.recording, comparisons[-1].recording)


def cannot_compare(
    reply: Recording | None, off: Off | str | None = None
) -> CannotCompare | AlreadyPlain | None:
    """Why a reply cannot be compared with plain decoding, or None if it can. `off` says why nothing
    would be drafted now."""
    if reply is None:
        return CannotCompare.NO_REPLY
    if reply.end is None:
        return CannotCompare.CUT_OFF
    if reply.went_on:
        return CannotCompare.CONTINUED
    if not reply.end.tokens:
        return CannotCompare.EMPTY
    if not reply.speculated and all(token.origin is not Origin.UNKNOWN for token in _tokens(reply)):
        return AlreadyPlain(off or reply.speculation_stopped or _undrafted(reply.terms))
    return None


def plain_terms(reply: Recording) -> Terms:
    """What to request to get the same reply without speculation: the same seed, and for a reply
    that was stopped the same length."""
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
    """The comparison of the two; None if one of them did not end or has no speed."""
    if reply.end is None or plain.end is None:
        return None
    if (known := _compared.get(plain)) is not None:
        return known
    speculative_rate, plain_rate = reply.end.tokens_per_second, plain.end.tokens_per_second
    if not speculative_rate or not plain_rate:
        return None
    _compared[plain] = Compared(
        speculative_tokens_per_second=speculative_rate,
        plain_tokens_per_second=plain_rate,
        speculative_tokens=reply.end.tokens,
        plain_tokens=plain.end.tokens,
        fork=first_fork(reply, plain),
        changed=tuple(sorted(reply.changed)),
        plain_cancelled=plain.end.finish_reason is FinishReason.CANCELLED,
    )
    return _compared[plain]


_compared: weakref.WeakKeyDictionary[Recording, Compared] = weakref.WeakKeyDictionary()
"""By the plain recording, which belongs to one reply. It is asked for with every frame, and goes
with the recordings of a closed chat."""


def first_fork(reply: Recording, plain: Recording) -> Fork | None:
    """The first token at which two recordings differ; None if there is none.

    The end of a recording that was cut off (cancelled, or the length or context was used up) is not
    a difference: it says nothing about the next token.
    """
    ours, theirs = _tokens(reply), _tokens(plain)
    if any(token.id is None for token in (*ours, *theirs)):
        return _fork_of_texts(reply, plain)
    for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one.id != other.id:
            return Fork(index, _named(one), _named(other))
    if len(ours) == len(theirs):
        return None
    shared = min(len(ours), len(theirs))
    shorter, rest = (reply, theirs[shared:]) if len(ours) == shared else (plain, ours[shared:])
    if not _ended_by_itself(shorter):
        return None
    more = _named(rest[0])
    return Fork(shared, *((None, more) if shorter is reply else (more, None)))


def _fork_of_texts(reply: Recording, plain: Recording) -> Fork | None:
    """The same by text, for an engine that reports no ids and may send several tokens as one."""
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
    """Index, start and end of the token that wrote the character at this place."""
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


def _undrafted(terms: Terms) -> NotDrafted:
    speculation = terms.speculation
    if not terms.engine and speculation.enabled and speculation.n_draft_max == AUTO:
        return NotDrafted.NOT_FASTER
    return NotDrafted.OTHER_CONTROLS


def _named(token: Token) -> str | int | None:
    return token.text or token.id

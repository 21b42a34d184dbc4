"""A reply against plain decoding of the same prompt: what was measured, and where they part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from eaglechat.chat.conversation.turns import Turns
from eaglechat.chat.recording import Recording, Terms
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import FinishReason, Token


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
    if not reply.speculated:
        why = off or reply.speculation_stopped or _undrafted(reply.terms.speculation)
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
    return None if reply.end is None or plain.end is None else _compare_ended(reply, plain)


@lru_cache(maxsize=16)
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
    for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if not _is_same(one, other):
            return Fork(index, _shown(one), _shown(other))
    if len(ours) == len(theirs):
        return None
    shared = min(len(ours), len(theirs))
    shorter, rest = (reply, theirs[shared:]) if len(ours) == shared else (plain, ours[shared:])
    if shorter.end is None or shorter.end.finish_reason is not FinishReason.STOP:
        return None
    more = _shown(rest[0])
    return Fork(shared, *((None, more) if shorter is reply else (more, None)))


def _tokens(recording: Recording) -> list[Token]:
    return [token for round_ in recording.rounds for token in round_.tokens]


def _undrafted(speculation: Speculation) -> str:
    """Why a reply was decoded plainly that a draft could go with, now at least."""
    if speculation.enabled and speculation.n_draft_max == AUTO:
        return "drafting was not expected to be faster; set n_draft_max by hand to draft anyway"
    return "ask again to have it drafted"


def _is_same(one: Token, other: Token) -> bool:
    """By what is written, where an engine does not report ids."""
    if one.id is None or other.id is None:
        return one.text == other.text
    return one.id == other.id


def _shown(token: Token) -> str:
    return token.text or f"token {token.id}"

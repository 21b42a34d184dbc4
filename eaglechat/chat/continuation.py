"""Continuing a stopped reply: whether it can be done, and what to request."""

from __future__ import annotations

import msgspec

from eaglechat.chat.recording import Recording, Terms
from eaglechat.chat.refusals import no_continuation
from eaglechat.chat.turns import Reply, TurnId, Turns
from eaglechat.wire.protocol import Hello, Message
from eaglechat.wire.records import FinishReason

_OF_THE_PROMPT = ("system_prompt", "thinking")


def cannot_continue(turns: Turns, id: TurnId, terms: Terms, hello: Hello | None) -> str | None:
    """Why a turn cannot be continued with these terms, or None if it can."""
    reply = turns.find(id)
    if not isinstance(reply, Reply):
        return "There is no reply to continue yet."
    if turns.is_followed(id):
        return "Only the last reply of a chat can be continued."
    end = reply.recording.end
    if end is not None and end.finish_reason is FinishReason.STOP:
        return "The reply is complete: there is nothing to continue."
    if reply.recording.terms.target != terms.target:
        return "Another model wrote the reply: answer the question again instead."
    if no_continuation(hello) is None and not _from_text(hello) and not reply.recording.ids:
        return "The tokens of the reply are not known, so it cannot be continued."
    return no_continuation(hello)


def beginning_of(
    recording: Recording, hello: Hello | None
) -> tuple[tuple[int, ...], list[Message]]:
    """What the engine continues: the tokens of the reply, or its text as a message for an engine
    that continues from text."""
    if not _from_text(hello):
        return recording.ids or (), []
    said = Message(role="assistant", content=recording.text, reasoning=recording.reasoning)
    return (), [said]


def _from_text(hello: Hello | None) -> bool:
    return hello is not None and hello.can.goes_on_from_text


def terms_to_continue(begun: Terms, now: Terms) -> Terms:
    """The terms for the rest of a reply: the prompt as it was, sampling and drafting as now."""
    kept = {name: getattr(begun, name) for name in _OF_THE_PROMPT}
    return msgspec.structs.replace(now, **kept)


def changes(begun: Terms, now: Terms) -> set[str]:
    """Names of the sampling and speculation terms that differ."""
    pairs = ((begun.sampling, now.sampling), (begun.speculation, now.speculation))
    return {
        name
        for one, other in pairs
        for name in one.__struct_fields__
        if name != "seed" and getattr(one, name) != getattr(other, name)
    }

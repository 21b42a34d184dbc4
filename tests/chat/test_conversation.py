"""The state of a chat, without a screen."""

from __future__ import annotations

import pytest

from eaglechat.chat import wording
from eaglechat.chat.conversation import Conversation, Fork, Run, first_fork
from eaglechat.wire.protocol import Message, Sampling, Speculation
from eaglechat.wire.records import (
    DraftToken,
    FinishReason,
    Origin,
    ReplyEnd,
    ReplyTimings,
    Round,
    RoundTimings,
    Token,
)

SAMPLING = Sampling(temperature=0.5)
SPECULATION = Speculation(n_draft_max=3)


def round_of(*ids: int, drafted: int = 2, ms: float = 10.0) -> Round:
    origin = Origin.CORRECTION if drafted else Origin.PLAIN
    return Round(
        index=0,
        n_draft_max=drafted,
        drafted=tuple(DraftToken(0, "d", 0.5) for _ in range(drafted)),
        n_tested=min(len(ids), drafted),
        n_accepted=min(len(ids) - 1, drafted),
        tokens=tuple(Token(i, f" t{i}", origin) for i in ids),
        n_past=100,
        timings=RoundTimings(1.0, ms - 1.0, 0.0, 0.0, ms),
    )


def end_of(tokens: int, ms: float, reason: FinishReason = FinishReason.STOP) -> ReplyEnd:
    return ReplyEnd(reason, 77, tokens, "", ReplyTimings(5.0, 9, 0, ms, 0.0, 0.0, 0.0, 0.0))


def asked(text: str = "why?", speculation: Speculation = SPECULATION) -> Conversation:
    conversation = Conversation()
    conversation.ask(text, sampling=SAMPLING, speculation=speculation)
    return conversation


def answered(reason: FinishReason = FinishReason.STOP) -> Conversation:
    conversation = asked()
    conversation.add_round(round_of(1, 2))
    conversation.add_round(round_of(3))
    conversation.finish(end_of(3, 30.0, reason))
    return conversation


def compared(conversation: Conversation, *ids: int, ms: float) -> Conversation:
    conversation.compare()
    for token in ids:
        conversation.add_round(round_of(token, drafted=0))
    conversation.finish(end_of(len(ids), ms))
    return conversation


def test_a_finished_reply_becomes_a_message() -> None:
    conversation = answered()
    assert conversation.messages == [
        Message(role="user", content="why?"),
        Message(role="assistant", content=" t1 t2 t3"),
    ]


def test_the_system_prompt_is_sent_but_is_no_message_of_the_chat() -> None:
    conversation = Conversation()
    chat = conversation.ask(
        "hi", sampling=SAMPLING, speculation=SPECULATION, system_prompt="Be brief."
    )
    assert [m.role for m in chat.messages] == ["system", "user"]
    assert [m.role for m in conversation.messages] == ["user"]


@pytest.mark.parametrize("how", ["cancelled", "failed", "died"])
def test_a_question_without_any_answer_is_taken_back(how: str) -> None:
    conversation = asked()
    if how == "cancelled":
        run: Run | None = conversation.finish(end_of(0, 0.0, FinishReason.CANCELLED))
    else:
        run = conversation.fail() if how == "failed" else conversation.abandon()
    assert run is not None
    assert run.taken_back == "why?"
    assert conversation.messages == []
    assert conversation.running is None


def test_a_partial_answer_stays_when_the_engine_dies() -> None:
    conversation = asked()
    conversation.add_round(round_of(1, 2))
    conversation.abandon()
    assert conversation.messages[-1] == Message(role="assistant", content=" t1 t2")


def test_a_comparison_repeats_the_request_with_the_seed_that_was_used() -> None:
    conversation = answered()
    chat = conversation.compare()
    assert chat.sampling.seed == 77
    assert chat.sampling.temperature == 0.5
    assert not chat.speculation.enabled
    assert [m.content for m in chat.messages] == ["why?"]
    assert chat.max_tokens is None


def test_a_cancelled_reply_is_compared_up_to_its_length() -> None:
    assert answered(FinishReason.CANCELLED).compare().max_tokens == 3


def test_a_comparison_is_measured_and_leaves_the_chat_alone() -> None:
    conversation = compared(answered(), 1, 2, 3, ms=60.0)
    result = conversation.comparison
    assert result is not None
    assert result.speed_up == pytest.approx(2.0)
    assert result.fork is None
    assert len(conversation.messages) == 2
    assert conversation.rolling.stats().rounds == 2
    assert conversation.last_reply is not None
    assert conversation.last_reply.speculated


def test_a_slower_reply_is_called_slower() -> None:
    result = compared(answered(), 1, 2, 4, ms=15.0).comparison
    assert result is not None
    text = wording.comparison_result(result)
    assert "plain decoding was 2.00x faster here" in text
    assert "First difference at token 3: “ t3” with speculation, “ t4” without." in text


def test_a_new_question_forgets_the_comparison() -> None:
    conversation = compared(answered(), 1, 2, 3, ms=60.0)
    conversation.ask("next", sampling=SAMPLING, speculation=SPECULATION)
    assert conversation.comparison is None


def test_there_is_nothing_to_compare_without_a_speculative_reply() -> None:
    assert Conversation().cannot_compare()
    assert asked().cannot_compare()
    assert answered().cannot_compare() is None


@pytest.mark.parametrize(
    ("speculation", "off", "advice"),
    [
        (Speculation(enabled=False), "you switched it off", "you switched it off"),
        (Speculation(enabled=False), None, "ask again"),
        (Speculation(n_draft_max="auto"), None, "F8 sets a length by hand"),
        (Speculation(n_draft_max="auto"), "the pair has no draft", "the pair has no draft"),
        (Speculation(n_draft_max=0), None, "ask again"),
    ],
)
def test_a_plain_reply_cannot_be_compared_and_it_says_what_to_do(
    speculation: Speculation, off: str | None, advice: str
) -> None:
    plain = asked(speculation=speculation)
    plain.add_round(round_of(1, drafted=0))
    plain.finish(end_of(1, 10.0))
    reason = plain.cannot_compare(off) or ""
    assert "plainly already" in reason
    assert advice in reason


@pytest.mark.parametrize(
    ("plain_ids", "plain_end", "fork"),
    [
        ((1, 2), FinishReason.STOP, Fork(2, " t3", None)),
        ((1, 2), FinishReason.CANCELLED, None),
        ((1, 9, 3), FinishReason.STOP, Fork(1, " t2", " t9")),
        ((1, 2, 3, 4), FinishReason.LENGTH, Fork(3, None, " t4")),
    ],
)
def test_the_first_fork(
    plain_ids: tuple[int, ...], plain_end: FinishReason, fork: Fork | None
) -> None:
    reply = answered().last_reply
    assert reply is not None
    plain = Run(reply.request, is_comparison=True)
    for token in plain_ids:
        plain.add(round_of(token, drafted=0))
    plain.end = end_of(len(plain_ids), 10.0, plain_end)
    assert first_fork(reply, plain) == fork

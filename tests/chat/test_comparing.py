"""A reply against plain decoding of the same prompt."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import msgspec
import pytest

from eaglechat.chat.comparing import (
    AlreadyPlain,
    CannotCompare,
    Fork,
    NotDrafted,
    cannot_compare,
    compare,
    first_fork,
    plain_terms,
)
from eaglechat.chat.recording import Recording
from eaglechat.chat.refusals import Off
from eaglechat.tui.texts import replies
from eaglechat.tui.texts.refusals import sentence_of
from eaglechat.wire.protocol import Speculation
from eaglechat.wire.records import FinishReason, Origin, Token
from tests.chat.records import SEED, TERMS, plainly, recorded, round_of


def reply(reason: FinishReason = FinishReason.STOP) -> Recording:
    return recorded(round_of(1, 2), round_of(3), reason=reason)


def test_a_comparison_asks_for_the_seed_that_was_used_and_no_speculation() -> None:
    terms = plain_terms(reply())
    assert terms.sampling == msgspec.structs.replace(TERMS.sampling, seed=SEED)
    assert not terms.speculation.enabled
    assert terms.max_tokens is None


def test_a_reply_that_was_stopped_is_compared_up_to_its_length() -> None:
    assert plain_terms(reply(FinishReason.CANCELLED)).max_tokens == 3


def test_what_was_measured() -> None:
    result = compare(reply(), plainly(1, 2, 3, ms=60.0))
    assert result is not None
    assert result.speed_up == pytest.approx(2.0)
    assert result.fork is None
    assert compare(reply(), Recording(TERMS)) is None


def test_a_slower_reply_is_called_slower() -> None:
    result = compare(reply(), plainly(1, 2, 4, ms=15.0))
    assert result is not None
    text = replies.comparison_result(result)
    assert "plain decoding was 2.00x faster here" in text
    assert "First difference at token 3: “ t3” with speculation, “ t4” without." in text


@pytest.mark.parametrize(
    ("recording", "reason"),
    [
        (None, CannotCompare.NO_REPLY),
        (Recording(TERMS), CannotCompare.CUT_OFF),
        (recorded(), CannotCompare.EMPTY),
        (reply(), None),
    ],
)
def test_what_cannot_be_compared(recording: Recording | None, reason: CannotCompare | None) -> None:
    assert cannot_compare(recording) is reason


@pytest.mark.parametrize(
    ("speculation", "off", "advice"),
    [
        (Speculation(enabled=False), Off.SWITCHED_OFF, "you switched it off"),
        (Speculation(enabled=False), None, "ask again"),
        (Speculation(n_draft_max="auto"), None, "set n_draft_max by hand"),
        (Speculation(n_draft_max="auto"), "the pair has no draft", "the pair has no draft"),
        (Speculation(n_draft_max=0), None, "ask again"),
    ],
)
def test_a_plain_reply_cannot_be_compared_and_it_says_what_to_do(
    speculation: Speculation, off: Off | str | None, advice: str
) -> None:
    terms = msgspec.structs.replace(TERMS, speculation=speculation)
    reason = cannot_compare(recorded(round_of(1, drafted=0), terms=terms), off)
    assert reason is not None
    assert "already decoded plainly" in sentence_of(reason)
    assert advice in sentence_of(reason)


@pytest.mark.parametrize(
    ("plain_ids", "plain_end", "fork"),
    [
        ((1, 2), FinishReason.STOP, Fork(2, " t3", None)),
        ((1, 2), FinishReason.CANCELLED, None),
        ((1, 9, 3), FinishReason.STOP, Fork(1, " t2", " t9")),
        ((1, 2, 3, 4), FinishReason.LENGTH, Fork(3, None, " t4")),
        ((1, 2, 3), FinishReason.LENGTH, None),
    ],
)
def test_the_first_fork(
    plain_ids: tuple[int, ...], plain_end: FinishReason, fork: Fork | None
) -> None:
    assert first_fork(reply(), plainly(*plain_ids, ms=10.0, reason=plain_end)) == fork


def sent(*chunks: str, reason: FinishReason = FinishReason.STOP) -> Recording:
    """A reply of a server that names no tokens, by what it sent at once."""
    tokens = (Token(None, text, Origin.UNKNOWN) for text in chunks)
    rounds = (replace(round_of(1, drafted=0), tokens=(token,)) for token in tokens)
    return recorded(*rounds, reason=reason)


@pytest.mark.parametrize(
    ("speculative", "plain", "fork"),
    [
        (sent("A", " cat sat", "."), sent("A", " cat", " sat", "."), None),
        (sent("A", " cat sat"), sent("A", " cat", " ran"), Fork(1, " cat sat", " cat ran")),
        (sent("A", " cat"), sent("A", " cat", " ran"), Fork(2, None, " ran")),
        (sent("A"), sent("A", " cat", reason=FinishReason.LENGTH), Fork(1, None, " cat")),
        (sent("A", reason=FinishReason.LENGTH), sent("A", " cat"), None),
    ],
)
def test_what_a_server_sends_at_once_is_no_difference(
    speculative: Recording, plain: Recording, fork: Fork | None
) -> None:
    assert first_fork(speculative, plain) == fork


def test_a_reply_of_which_nobody_knows_who_drafted_it_can_be_compared() -> None:
    assert cannot_compare(sent("A", " cat")) is None


def test_a_server_s_draft_length_is_not_to_be_set() -> None:
    speculation = Speculation(n_draft_max="auto")
    terms = msgspec.structs.replace(TERMS, speculation=speculation, engine="vLLM")
    reason = cannot_compare(recorded(round_of(1, drafted=0), terms=terms))
    assert reason == AlreadyPlain(NotDrafted.OTHER_CONTROLS)
    assert "already decoded plainly: ask again" in sentence_of(reason)


def test_a_closed_chat_is_not_kept_by_what_was_compared() -> None:
    speculative, plain = reply(), plainly(5, 6, ms=40.0)
    assert compare(speculative, plain) is not None
    kept = weakref.ref(speculative), weakref.ref(plain)
    del speculative, plain
    gc.collect()
    assert [one() for one in kept] == [None, None]

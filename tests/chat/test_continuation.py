"""A reply that was stopped goes on where it stopped, as one reply."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from eaglechat.chat.recording import Recording
from eaglechat.engine.templates.dialect import tagged
from eaglechat.wire import protocol
from eaglechat.wire.protocol import OWN_ENGINE
from eaglechat.wire.records import FinishReason
from tests.chat.headless import Headless, reopened
from tests.tui.scripted import REPLY


def stopped(chat: Headless, rounds: int = 3) -> Recording:
    """The recording of a reply that was stopped after some rounds."""
    chat.begin("why?")
    chat.rounds(rounds)
    chat.session.stop()
    chat.finish()
    reply = chat.session.turns.last_reply
    assert reply is not None
    return reply.recording


def forget_ids(recording: Recording) -> None:
    """As if the engine had reported no ids."""
    recording.settle(
        [
            replace(one, tokens=tuple(replace(token, id=None) for token in one.tokens))
            for one in recording.rounds
        ]
    )


def goes_on(chat: Headless) -> bool:
    return chat.session.continue_reply(chat.session.turns.path[-1].id)


@pytest.mark.parametrize("is_reopened", [False, True])
def test_it_goes_on_to_the_end_with_the_numbers_of_both(chat: Headless, is_reopened: bool) -> None:
    recording = stopped(chat)
    ids, first = recording.ids, recording.end
    if is_reopened:
        chat = reopened(chat)
    assert goes_on(chat)
    chat.finish()
    assert chat.last_request.begun == ids
    assert chat.texts == ["why?", REPLY]
    whole = chat.session.turns.last_reply
    assert whole is not None
    end, rounds = whole.recording.end, whole.recording.rounds
    assert end is not None
    assert first is not None
    assert end.finish_reason is FinishReason.STOP
    assert end.tokens == sum(len(round_.tokens) for round_ in rounds) > first.tokens
    assert [round_.index for round_ in rounds] == [*range(len(rounds))]
    assert end.timings.generation_ms == pytest.approx(
        sum(round_.timings.total_ms for round_ in rounds), abs=0.1
    )
    assert whole.recording.stats.accepted == sum(round_.n_accepted for round_ in rounds)
    again = reopened(chat)
    last = again.session.turns.last_reply
    assert last is not None
    assert again.texts == ["why?", REPLY]
    assert last.recording.end == end
    assert last.recording.stats == whole.recording.stats


def test_it_goes_on_in_the_middle_of_a_thought(chat: Headless) -> None:
    chat.engine.dialect = tagged("<think>", "</think>")
    chat.engine.reply = "<think> let me see a while longer </think> it is so"
    recording = stopped(chat, 1)
    assert recording.reasoning
    assert not recording.text
    assert goes_on(chat)
    chat.finish()
    assert (recording.reasoning.strip(), recording.text) == (
        "let me see a while longer",
        "it is so",
    )


def test_stopping_before_anything_new_leaves_it_as_it_was(chat: Headless) -> None:
    recording = stopped(chat)
    end = recording.end
    chat.engine.chat_error = ("prompt", "too long")
    assert goes_on(chat)
    chat.finish()
    assert recording.end == end
    assert "Too long." in chat.shown[-1]


def test_turned_controls_hold_for_what_follows(chat: Headless) -> None:
    stopped(chat)
    chat.session.change_controls(replace(chat.session.controls, n_draft_max=1))
    assert goes_on(chat)
    chat.finish()
    assert chat.last_request.speculation.n_draft_max == 1


def test_what_a_server_makes_sure_of_late_is_of_the_rest_alone(chat: Headless) -> None:
    recording = stopped(chat)
    before = list(recording.rounds)
    recording.go_on()
    for tell in (lambda: recording.add(before[0]), lambda: recording.settle([before[0]])):
        tell()
        assert list(recording.rounds) == [*before, replace(before[0], index=len(before))]
        assert recording.stats.rounds == len(recording.rounds)


def test_what_cannot_go_on_says_why(chat: Headless) -> None:
    chat.ask("one")
    assert not goes_on(chat)
    assert "complete" in chat.said[-1]
    recording = stopped(chat)
    assert not chat.session.continue_reply(chat.session.turns.path[1].id)
    assert chat.said[-1] == "Only the last reply of a chat can be continued."
    hello = chat.session.hello
    assert hello is not None
    less = msgspec.structs.replace(OWN_ENGINE, own=False)
    chat.engine.hello = msgspec.structs.replace(hello, can=less)
    assert not goes_on(chat)
    assert chat.said[-1] == "eaglechat cannot continue a reply."
    chat.engine.hello = hello
    recording.terms = msgspec.structs.replace(recording.terms, target="/another.gguf")
    assert not goes_on(chat)
    assert "Another model" in chat.said[-1]


def test_one_whose_tokens_are_not_known_cannot(chat: Headless) -> None:
    recording = stopped(chat)
    forget_ids(recording)
    assert not goes_on(chat)
    assert "not known" in chat.said[-1]


def test_an_engine_that_needs_no_tokens_gets_the_text(chat: Headless) -> None:
    recording = stopped(chat)
    hello = chat.session.hello
    assert hello is not None
    can = msgspec.structs.replace(OWN_ENGINE, own=False, goes_on_from_text=True)
    chat.engine.hello = msgspec.structs.replace(hello, can=can)
    forget_ids(recording)
    text = recording.text
    assert goes_on(chat)
    asked = chat.last_request
    assert asked.begun == ()
    assert [message.content for message in asked.messages] == ["why?", text]
    assert asked.messages[-1].role == "assistant"
    chat.finish()
    assert recording.text.startswith(text)


def test_what_is_continued_behind_settled_rounds_is_on_disk(chat: Headless) -> None:
    """Rounds may be told again at the end; a reply that reached its limit then goes on."""
    recording = stopped(chat)
    running_rounds = [*recording.rounds]
    assert goes_on(chat)
    chat.rounds(2)
    running = chat.session.running
    assert running is not None
    new = recording.rounds[len(running_rounds) :]
    chat.engine.tell(protocol.Progress(id=running.request_id, step=protocol.Settled(tuple(new))))
    chat.session.stop()
    chat.finish()
    so_far = recording.text
    assert recording.is_settled
    assert goes_on(chat)
    chat.finish()
    assert recording.text == REPLY
    assert len(recording.text) > len(so_far)

    again = reopened(chat).session.turns.last_reply
    assert again is not None
    assert again.recording.text == REPLY
    assert len(again.recording.rounds) == len(recording.rounds)
    assert again.recording.n_past == recording.n_past

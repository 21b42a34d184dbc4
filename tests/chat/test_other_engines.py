"""A chat with an engine that reports little and can do less, as other people's servers do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from eaglechat.chat.refusals import no_comparison
from eaglechat.wire.protocol import AUTO, Capabilities, Set
from eaglechat.words import numbers
from eaglechat.words.wording import not_reported
from tests.chat.headless import Headless, reopened
from tests.tui.scripted import REPLY, ScriptedEngine


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Headless:
    start = ScriptedEngine.open_engine

    def open_server(engine: ScriptedEngine, say: object) -> None:
        engine.engine_name, engine.can = (
            "llama-server",
            Capabilities(origins=True, draft_length=True),
        )
        start(engine, say)  # type: ignore[arg-type]

    monkeypatch.setattr(ScriptedEngine, "open_engine", open_server)
    return Headless(tmp_path)


def test_what_is_reported_is_counted_and_the_rest_is_named(chat: Headless) -> None:
    chat.ask("why?")

    assert chat.texts == ["why?", REPLY]
    shown, headline = chat.session.shown, numbers.headline(chat.session)
    assert shown is not None
    assert shown.stats.accepted > 0
    assert headline.state == "not measured"
    assert headline.tokens_per_second
    assert shown.stretch.round_means is not None
    assert shown.stretch.round_means[0] is None
    assert not_reported(chat.session.hello, "own") == "not reported by llama-server"
    rejected = [round_.rejected for round_ in shown.rounds if round_.rejected]
    assert {(token.id, token.text, token.probability) for token in rejected} == {(None, None, None)}


def test_what_it_cannot_do_is_said_and_not_asked_for(chat: Headless) -> None:
    chat.ask("why?")
    assert chat.session.to_compare() is None
    (why,) = chat.said
    assert why.startswith("llama-server drafts the way it was started. To compare, name the same")

    chat.session.change_controls(replace(chat.session.controls, n_draft_max=AUTO))
    assert chat.said[1:] == ["llama-server cannot choose the draft length itself: set one by hand."]
    assert chat.session.controls.n_draft_max == 3


def test_a_change_that_waits_for_the_next_reply_says_so(chat: Headless) -> None:
    assert chat.begin("why?")
    chat.rounds(1)
    chat.session.change_controls(replace(chat.session.controls, temperature=0.1))

    assert chat.engine.requests(Set)
    assert chat.said == ["llama-server applies this from the next reply on."]


def reports(chat: Headless, can: Capabilities) -> None:
    """Make its engine one of these capabilities."""
    assert chat.engine.hello is not None
    chat.engine.hello = msgspec.structs.replace(chat.engine.hello, can=can)


@pytest.mark.parametrize("change", [{"n_draft_max": 5}, {"enabled": False}, {"p_min": 0.5}])
def test_drafting_that_was_settled_when_it_was_started_stays(
    chat: Headless, change: dict[str, Any]
) -> None:
    reports(chat, Capabilities(origins=True))
    before = chat.session.controls
    chat.session.change_controls(replace(before, temperature=0.3, **change))

    assert chat.session.controls == replace(before, temperature=0.3)
    assert chat.said == [
        "llama-server drafts the way it was started; eaglechat cannot change that."
    ]
    assert not chat.session.can.draft_length


def test_an_engine_that_does_not_say_where_tokens_come_from_is_named(chat: Headless) -> None:
    assert numbers.unreported(chat.session) is None
    reports(chat, Capabilities())
    assert numbers.unreported(chat.session) == "not reported by llama-server"


def test_the_engine_that_wrote_a_reply_is_kept_with_it(chat: Headless) -> None:
    chat.ask("why?")
    (_, reply) = chat.session.turns.path
    assert reply.recording.terms.engine == "llama-server"  # type: ignore[union-attr]
    assert reopened(chat).session.turns.path[1].recording.terms.engine == "llama-server"  # type: ignore[union-attr]


def test_auto_is_off_from_the_start_with_its_reason(chat: Headless) -> None:
    chat.session.controls = replace(chat.session.controls, n_draft_max=AUTO)
    chat.session.open()
    assert chat.session.controls.n_draft_max == 3
    reason = "llama-server cannot choose the draft length itself: set one by hand."
    assert chat.said == [reason]


def test_an_engine_whose_program_restarts_says_so_when_drafting_is_turned(chat: Headless) -> None:
    chat.session.change_controls(replace(chat.session.controls, temperature=0.1))
    assert chat.said == []
    chat.session.change_controls(replace(chat.session.controls, n_draft_max=5))
    assert chat.said == ["llama-server restarts with this before the next reply."]
    assert chat.session.controls.n_draft_max == 5
    before = chat.session.controls
    chat.session.change_controls(replace(before, ngram=not before.ngram, temperature=0.2))
    assert chat.said[-1] == "llama-server drafts only chains, without n-grams."
    assert chat.session.controls == replace(before, temperature=0.2)
    assert numbers.without_effect(chat.session).keys() >= {"ngram", "shape"}
    assert chat.session.terms.engine == "llama-server"


def test_a_server_without_a_name_begins_a_sentence(chat: Headless) -> None:
    hello = chat.session.hello
    assert hello is not None
    nameless = msgspec.structs.replace(hello, engine="this server", can=Capabilities())
    reason = no_comparison(nameless)
    assert reason is not None
    assert reason.startswith("This server drafts the way it was started")
    assert not_reported(nameless, "origins") == "not reported by this server"


def test_plain_rounds_do_not_make_verifying_look_cheaper(tmp_path: Path) -> None:
    """Under auto many rounds draft nothing: the mean of both is of the rounds that drafted."""
    chat = Headless(tmp_path)
    chat.ask("why?")
    (drafting, *_) = [one for one in chat.session.turns.last_reply.recording.rounds if one.drafted]
    quick = msgspec.structs.replace(drafting.timings, verify_ms=0.001, draft_ms=0.0)
    plain = msgspec.structs.replace(drafting, drafted=(), n_tested=0, n_accepted=0, timings=quick)
    recording = chat.session.turns.last_reply.recording
    before = recording.stretch.round_means
    assert before is not None
    for _ in range(30):
        recording.add(plain)

    assert recording.stretch.round_means == before

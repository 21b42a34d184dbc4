"""A chat with an engine, without a screen."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from eaglechat.chat.recording import Recording
from eaglechat.chat.session import Running
from eaglechat.chat.turns import Reply
from eaglechat.chat.writing.question import text_of, typed
from eaglechat.links.base import Link
from eaglechat.settings.model import GenerationSettings, Settings
from eaglechat.wire import protocol
from eaglechat.wire.protocol import AUTO, Message
from eaglechat.wire.records import Prefill
from eaglechat.words import numbers
from eaglechat.words.timeline import progress
from tests.chat.headless import Headless, reopened
from tests.chat.home import Home
from tests.chat.records import TERMS
from tests.tui.scripted import REPLY


def test_a_question_and_its_reply(chat: Headless) -> None:
    chat.ask("why?")
    assert chat.texts == ["why?", REPLY]
    assert chat.last_request.messages == (Message(role="user", content="why?"),)
    assert chat.session.controls.n_draft_max == 3
    chat.ask("and then?")
    assert [m.content for m in chat.last_request.messages] == ["why?", REPLY, "and then?"]


def test_rounds_change_only_the_reply_that_goes_on(chat: Headless) -> None:
    chat.begin("why?")
    chat.rounds(1)
    changes = chat.changes
    chat.rounds(3)
    assert chat.changes == changes
    chat.finish()
    assert chat.changes > changes


def test_the_system_prompt_is_sent_but_is_no_turn(tmp_path: Path) -> None:
    settings = Settings(generation=GenerationSettings(system_prompt="Be brief.", max_tokens=5))
    chat = Headless(tmp_path, settings=settings)
    chat.ask("hi")
    assert [m.role for m in chat.last_request.messages] == ["system", "user"]
    assert chat.last_request.max_tokens == 5
    assert len(chat.texts) == 2


def test_one_thing_at_a_time(chat: Headless) -> None:
    chat.begin("why?")
    chat.rounds(1)
    question, reply = chat.session.turns.path
    assert not chat.begin("more")
    assert chat.session.to_compare() is None
    assert not chat.session.answer_again(reply.id)
    assert not chat.session.edit(question.id, typed("what?"))
    assert not chat.session.step(reply.id, 1)
    assert not chat.session.delete(question.id)
    assert len(chat.said) == 6
    assert len(chat.engine.requests(protocol.Chat)) == 1


@pytest.mark.parametrize(
    ("stage", "said"), [("target", "loading the target 40%"), ("server", "waiting for the server")]
)
def test_what_a_reply_waits_for_is_said(chat: Headless, stage: str, said: str) -> None:
    chat.begin("why?")
    running = chat.session.running
    assert running is not None
    chat.engine.tell(protocol.Progress(id=running.request_id, step=protocol.Loading(stage, 0.4)))
    Link.pump(chat.engine)  # without a step of the script
    assert progress(running) == said


def test_how_far_a_prompt_is_read_is_said_where_it_is_known() -> None:
    running = Running(Reply(2, 1, Recording(TERMS)))
    assert progress(running) == "reading the prompt"
    running.prefill = Prefill(5, 10, 0)
    assert progress(running) == "reading the prompt 50%"


@pytest.mark.parametrize("how", ["stopped", "refused", "died"])
def test_a_question_without_any_answer_is_given_back(chat: Headless, how: str) -> None:
    chat.ask("one")
    chat.engine.budget = 0
    if how == "refused":
        chat.engine.chat_error = ("prompt", "the prompt is too long")
    chat.begin("two")
    if how == "stopped":
        chat.session.stop()
        chat.session.stop()
    elif how == "died":
        chat.engine.die("GGML_ASSERT")
    chat.pump_until(lambda: chat.session.running is None)
    assert chat.given_back == ["two"]
    assert chat.texts == ["one", REPLY]
    said = {"stopped": "Stopped before", "refused": "too long", "died": "GGML_ASSERT"}[how]
    assert said in chat.shown[3]
    assert len(chat.shown) == 4
    assert len(chat.engine.requests(protocol.Cancel)) == (how == "stopped")


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_is_typed_below_an_unanswered_question_costs_neither(
    tmp_path: Path, is_killed: bool
) -> None:
    home = Home(tmp_path)
    chat = home.open()
    chat.engine.budget = 0
    chat.begin("two")
    chat.save("and three")
    if is_killed:
        home.kill(chat)
    else:
        chat.leave("and three")
    again = home.open(chat.session.chat.name)
    assert text_of(again.session.chat.unsent) == "two\n\nand three"
    again.session.leave(again.session.chat.unsent)
    assert text_of(home.store.read(again.session.chat.name).unsent) == "two\n\nand three"


def test_a_partial_answer_stays_when_the_engine_dies(chat: Headless) -> None:
    chat.begin("why?")
    chat.rounds(3)
    chat.engine.die("GGML_ASSERT")
    chat.pump_until(lambda: chat.session.running is None)
    assert REPLY.startswith(chat.texts[-1])
    assert chat.texts[-1]
    assert chat.entries[-2].note == "cut off here"
    assert chat.shown[-1].startswith("error: ")
    assert not chat.begin("more")
    chat.load()
    chat.session.loaded(chat.pair, chat.info)
    chat.ask("more")
    assert chat.texts[2:] == ["more", REPLY]


def test_what_another_request_still_says_is_not_heard(chat: Headless) -> None:
    chat.begin("why?")
    chat.rounds(2)
    chat.leave()
    chat.session.open()
    chat.begin("who?")
    chat.finish()
    assert chat.texts == ["who?", REPLY]


def test_answering_again_takes_another_seed_and_keeps_the_first_reply(tmp_path: Path) -> None:
    chat = Headless(tmp_path, settings=Settings(generation=GenerationSettings(seed=5)))
    chat.ask("why?")
    first = chat.session.turns.path[1]
    assert chat.last_request.sampling.seed == 5
    chat.engine.reply = "Because."
    assert chat.session.answer_again(first.id)
    chat.finish()
    assert chat.last_request.sampling.seed is None
    assert [m.content for m in chat.last_request.messages] == ["why?"]
    assert chat.texts == ["why?", "Because."]
    chat.session.step(chat.session.turns.path[1].id, -1)
    assert chat.texts == ["why?", REPLY]


def test_the_numbers_are_all_of_the_version_on_show(chat: Headless) -> None:
    chat.ask("why?")
    chat.engine.accepted_of_each_round = (0,)
    (_, first) = chat.session.turns.path
    chat.session.answer_again(first.id)
    chat.finish()

    def of_this_reply_alone() -> bool:
        shown, reply = chat.session.shown, chat.session.turns.last_reply
        assert reply
        assert shown is reply.recording
        return shown.stretch.stats == shown.stats and chat.session.n_past == shown.n_past

    again = chat.session.turns.path[1]
    chat.session.step(again.id, -1)
    assert of_this_reply_alone()
    chat.session.step(first.id, 1)
    assert of_this_reply_alone()
    chat.session.delete(again.id)
    assert of_this_reply_alone()
    chat.session.undo_delete()
    assert of_this_reply_alone()


def test_an_answer_again_of_which_nothing_came_leaves_the_first_one(chat: Headless) -> None:
    chat.ask("why?")
    chat.engine.budget = 0
    chat.session.answer_again(chat.session.turns.path[1].id)
    chat.session.stop()
    chat.pump_until(lambda: chat.session.running is None)
    assert chat.texts == ["why?", REPLY]
    assert chat.given_back == []


def test_before_a_question_there_is_no_prompt_to_compare_on(chat: Headless) -> None:
    asked = chat.session.to_compare()
    assert asked is not None
    assert not asked.prompts


def test_controls_reach_a_running_reply_and_the_next_one(chat: Headless) -> None:
    chat.begin("why?")
    chat.rounds(1)
    chat.session.change_draft_length(2)
    chat.session.change_controls(msgspec.structs.replace(chat.session.controls, temperature=0.3))
    chat.session.switch_auto()
    chat.session.change_draft_length(-99)
    assert chat.engine.requests(protocol.Set) == [
        protocol.Set(n_draft_max=5),
        protocol.Set(temperature=0.3),
        protocol.Set(n_draft_max=AUTO),
        protocol.Set(n_draft_max=0),
    ]
    chat.finish()
    chat.session.change_draft_length(99)
    chat.ask("more")
    assert chat.last_request.speculation.n_draft_max == 16
    assert chat.last_request.sampling.temperature == 0.3


def test_what_the_models_maker_recommends_holds_until_somebody_sets_it(tmp_path: Path) -> None:
    recommended = {"temperature": 0.2, "top_k": 7}
    settings = Settings().with_value("generation", "top_k", 9)
    chat = Headless(tmp_path, settings=settings, recommended=recommended)
    assert chat.session.controls.temperature == 0.2
    chat.ask("why?")
    assert chat.last_request.sampling.temperature == 0.2
    assert chat.last_request.sampling.top_k == 9
    chat.session.follow_settings(settings, settings.with_value("generation", "temperature", 1.0))
    assert chat.session.controls.temperature == 1.0


def test_what_is_turned_before_the_models_are_loaded_holds(tmp_path: Path) -> None:
    chat = Headless(tmp_path, recommended={"temperature": 0.2, "top_k": 7}, is_loaded=False)
    chat.session.change_controls(msgspec.structs.replace(chat.session.controls, temperature=0.9))
    chat.session.loaded(chat.pair, chat.info)
    chat.ask("why?")
    assert chat.last_request.sampling.temperature == 0.9
    assert chat.last_request.sampling.top_k == 7


def test_the_numbers_are_of_the_running_reply_and_then_the_engines_own(chat: Headless) -> None:
    chat.begin("why?")
    chat.rounds(4)
    shown = chat.session.shown
    assert shown
    assert shown.stats.rounds == len(shown.rounds) == 4
    assert chat.session.n_past > 0
    chat.finish()
    shown = chat.session.shown
    assert shown
    assert shown.end
    speed = numbers.headline(chat.session).tokens_per_second
    assert speed == pytest.approx(shown.end.tokens_per_second)


def test_a_reopened_chat_is_as_it_was_left(chat: Headless) -> None:
    chat.ask("one")
    chat.begin("two")
    chat.rounds(3)
    chat.session.change_draft_length(1)
    chat.session.stop()
    chat.finish()
    before, room = chat.entries[1:], numbers.room(chat.session)
    again = reopened(chat, "half a thought")
    assert again.session.chat.unsent[0].text == "half a thought"
    for was, now in zip(before, again.entries, strict=True):
        assert (was.kind, was.text, was.note) == (now.kind, now.text, now.note)
        if was.recording:
            assert now.recording
            assert list(now.recording.rounds) == list(was.recording.rounds)
            assert now.recording.end == was.recording.end
            assert now.recording.stats == was.recording.stats
            assert now.recording.terms == was.recording.terms
    assert numbers.room(again.session) == room
    again.ask("three")
    assert [m.content for m in again.last_request.messages][::2] == ["one", "two", "three"]


@pytest.mark.parametrize("what", ["delete", "answer_again", "step", "continue_reply", "edit"])
def test_a_turn_that_is_gone_is_said_to_be(tmp_path: Path, what: str) -> None:
    """A key may come for a turn that was deleted a moment ago."""
    chat = Headless(tmp_path)
    chat.ask("why?")
    gone = chat.session.turns.path[-1].id
    assert chat.session.delete(gone)
    more = {"step": (1,), "edit": ("how?",)}.get(what, ())

    assert not getattr(chat.session, what)(gone, *more)

    assert chat.said[-1] == "This turn was deleted."


def test_there_is_no_sibling_beyond_the_last(chat: Headless) -> None:
    chat.ask("one")
    reply = chat.session.turns.path[1].id
    assert chat.session.step(reply, 1) is None
    assert "no other version" in chat.said[-1]
    chat.session.answer_again(reply)
    chat.finish()
    again = chat.session.turns.path[1].id
    assert chat.session.step(again, 1) is None
    assert chat.said[-1] == "This is the newest of 2."
    assert chat.session.step(again, -1) == reply

"""Replies that think, on the screen: a block above the answer, its line, and its controls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eaglechat.engine.templates.dialect import tagged
from eaglechat.tui.widgets.panel.panel import SpeculationPanel
from eaglechat.tui.widgets.transcript.entries import MARGIN, DrawnEntry
from eaglechat.tui.widgets.transcript.transcript import Transcript
from eaglechat.wire import protocol
from eaglechat.wire.records import Part
from eaglechat.words import wording
from tests.tui.driving import WIDE, Driver
from tests.tui.scripted import ScriptedEngine
from tests.tui.widgets.transcript_app import shown_in

Drive = Callable[..., Driver]

THOUGHT = "The user wants a colour. " * 12
REPLY = f"<think> {THOUGHT}</think> Blue is one, red another."
SIZES = ((80, 24), WIDE)


@pytest.fixture
def engine() -> ScriptedEngine:
    engine = ScriptedEngine()
    engine.dialect = tagged("<think>", "</think>")
    engine.reasoning = protocol.Reasoning(
        marked=True, on_off=True, efforts=("low", "high"), can_end=True
    )
    engine.reply = REPLY
    return engine


def thought(user: Driver) -> DrawnEntry:
    [shown] = shown_in(user.chat.transcript, "thought")
    return shown.drawn


@pytest.mark.parametrize("size", SIZES)
async def test_reasoning_streams_above_the_answer_and_then_is_one_line(
    drive: Drive, size: tuple[int, int]
) -> None:
    async with drive(size=size) as user:
        await user.open_chat()
        await user.ask("Which colour?", rounds=4)
        await user.sees("The user wants")
        assert not thought(user).is_folded

        user.engine.budget = None
        await user.idle()

        await user.sees("▸ thought for")
        await user.sees("tokens,")
        await user.sees("tok/s, kept ")
        await user.sees(" tokens a round")
        await user.sees("Blue is one, red another.")
        assert thought(user).is_folded


async def test_folded_reasoning_is_one_line_in_any_terminal(drive: Drive) -> None:
    async with drive(size=(120, 24)) as user:
        await user.open_chat()
        await user.ask("Which colour?")
        await user.sees("▸ thought for")
        assert thought(user).height == 1 + MARGIN
        for width in (60, 50, 44):
            await user.pilot.resize_terminal(width, 24)
            await user.until(
                lambda width=width: thought(user).look.width < width, "the other width"
            )
            assert thought(user).height == 1 + MARGIN


async def test_a_key_and_a_click_open_the_reasoning_which_is_not_copied_and_goes_back_by_itself(
    drive: Drive,
) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("Which colour?")
        await user.sees("▸ thought for")

        await user.command("chat.thought")
        await user.sees("The user wants")
        await user.command("chat.thought")
        await user.sees("▸ thought for")
        await user.click_text("▸ thought for")
        await user.sees("The user wants")

        await user.command("chat.copy")
        assert user.app.clipboard.strip() == "Blue is one, red another."
        await user.ask("Another?")
        reply = user.messages[1]
        assert reply.content.strip() == "Blue is one, red another."
        assert reply.reasoning.strip() == THOUGHT.strip()


async def test_words_that_are_found_in_folded_reasoning_are_shown(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("Which?")
        await user.sees("▸ thought for")
        await user.command("chat.find")
        await user.type("colour")
        await user.sees(" of 12")
        await user.sees("The user wants a colour.")
        assert not thought(user).is_folded


async def test_reasoning_that_is_being_read_stays_open(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        user.engine.reply = f"<think> {THOUGHT * 8}</think> Blue."
        await user.ask("Which colour?", rounds=150)
        await user.press("pageup")
        transcript = user.chat.query_one(Transcript)
        await user.until(lambda: not transcript.is_vertical_scroll_end, "scrolled up")

        user.engine.budget = None
        await user.idle()

        assert not thought(user).is_folded


async def test_a_reply_stopped_in_mid_thought_is_kept_and_reopened_as_it_was(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("Which colour?", rounds=3)
        await user.press("escape")
        await user.idle()
        await user.sees("▸ thought for")
        await user.sees("stopped")
        before = user.chat.session.turns.last_reply
        assert before is not None
        assert Part.REASONING in before.recording.by_part

        await user.command("chat.new")
        await user.command("chats.open")
        await user.sees("1 chat ")
        await user.press("enter")

        await user.until(lambda: shown_in(user.chat.transcript, "thought"), "the reasoning")
        await user.sees("▸ thought for")
        after = user.chat.session.turns.last_reply
        assert after is not None
        assert after.reasoning == before.reasoning


async def test_answer_now_ends_the_reasoning(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("Which colour?", rounds=3)
        await user.command("chat.answer_now")
        user.engine.budget = None
        await user.idle()

        reply = user.messages[1]
        assert reply.content.strip() == "Blue is one, red another."
        assert len(reply.reasoning) < len(THOUGHT)
        await user.command("chat.answer_now")
        await user.sees("not thinking now")


async def test_thinking_and_effort_are_controls_for_the_next_reply(drive: Drive) -> None:
    async with drive(size=(200, 60)) as user:
        await user.open_chat()
        await user.sees("thinking [auto] on off")
        await user.sees("effort   [auto] low")
        user.chat.action_control("thinking", "off")
        user.chat.action_control("effort", "medium")
        await user.ask("Which colour?")

        sent = [m for m in user.engine.sent if isinstance(m, protocol.Chat)][-1]
        # The template knows low and high only.
        assert sent.thinking == protocol.Thinking(enabled=False, effort="high")


async def test_a_dialog_has_the_numbers_of_both_parts(drive: Drive, engine: ScriptedEngine) -> None:
    engine.sampling = {"top_k": 20, "top_p": 0.9}
    async with drive(size=(200, 50)) as user:
        await user.open_chat()
        await user.ask("Which colour?")
        assert user.chat.query_one(SpeculationPanel).max_scroll_y == 0
        await user.command("chat.context")
        shown = user.chat.session.shown
        assert shown is not None
        assert list(shown.by_part) == [Part.REASONING, Part.ANSWER]
        for part, stats in shown.by_part.items():
            speed = wording.tokens_per_second(stats.tokens_per_second or 0.0)
            await user.sees(f"{part.value:<14}{speed}, kept")

"""Turns of a chat, worked on in the app: selected, edited, answered again, deleted."""

from __future__ import annotations

from collections.abc import Callable

from eaglechat.chat.turns import Question
from eaglechat.wire import protocol
from tests.tui.driving import Driver
from tests.tui.scripted import REPLY
from tests.tui.widgets.transcript_app import shown_in

Drive = Callable[..., Driver]


async def asked(user: Driver, *questions: str) -> None:
    await user.open_chat()
    user.engine.reply = "so it is"
    for question in questions:
        await user.ask(question)


def questions(user: Driver) -> list[str]:
    return [turn.text for turn in user.chat.session.turns.path if isinstance(turn, Question)]


async def test_an_earlier_question_is_asked_in_other_words(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await asked(user, "one", "two")
        user.prompt.load_text("half a thought")
        await user.command("chat.edit", "chat.edit")
        assert user.prompt.text == "one"
        await user.sees("Editing:")
        await user.type("s")
        await user.press("enter")
        await user.idle()
        assert questions(user) == ["ones"]
        assert user.prompt.text == "half a thought"
        await user.sees("◂ 2/2 ▸")
        await user.command("chat.older_version")
        await user.until(lambda: questions(user) == ["one", "two"], "the first wording")
        await user.sees("◂ 1/2 ▸")


async def test_an_edit_that_is_given_up_gives_back_what_was_typed(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await asked(user, "one")
        user.prompt.load_text("half a thought")
        await user.command("chat.edit")
        await user.type("x")
        await user.command("chat.edit")
        assert user.prompt.text == "onex"
        await user.press("escape")
        assert user.prompt.text == "half a thought"
        assert questions(user) == ["one"]
        await user.press("up")
        assert user.prompt.text == "onex"


async def test_an_edit_stopped_before_its_answer_is_in_the_prompt_as_an_edit(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await asked(user, "one")
        await user.command("chat.edit")
        await user.type("s")
        user.engine.budget = 0
        await user.press("enter")
        await user.press("escape")
        await user.idle()
        await user.sees("Editing:")
        assert (user.prompt.text, questions(user)) == ("ones", ["one"])
        user.engine.budget = None
        await user.press("enter")
        await user.idle()
        assert questions(user) == ["ones"]


async def test_a_question_that_is_stopped_unanswered_comes_back_above_what_is_typed(
    drive: Drive,
) -> None:
    async with drive(size=(80, 24)) as user:
        await asked(user, "one")
        for edits, shown in ((False, "two\n\nwhile it reads"), (True, "two\n\nhalf a thought")):
            user.prompt.load_text("two")
            user.engine.budget = 0
            await user.press("enter")
            await user.until(lambda: user.chat.session.running, "the question")
            if edits:
                user.prompt.load_text("half a thought")
                await user.command("chat.turn_before", "chat.turn_before", "chat.turn_before")
                await user.command("chat.edit")
                assert user.prompt.text == "one"
            await user.type(" while it reads")
            await user.press("ctrl+c")
            await user.idle()
            if edits:
                assert user.prompt.text == "one while it reads"
                await user.press("escape")
            assert user.prompt.text.replace("\n ", "\n") == shown


async def test_a_turn_is_selected_by_keys_and_answered_again(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await asked(user, "one", "two")
        await user.command("chat.turn_before", "chat.turn_before", "chat.turn_before")
        first_reply = user.chat.session.turns.path[1].id
        assert user.chat.transcript.selected == first_reply
        await user.command("chat.again")
        await user.idle()
        assert questions(user) == ["one"]
        assert user.chat.session.turns.siblings(first_reply)[0] == first_reply
        await user.command("chat.turn_before", "chat.turn_after")
        assert user.chat.transcript.selected is None


async def test_a_click_moves_nothing_on_the_screen(drive: Drive) -> None:
    """Wherever it falls: on a word far below the beginning of its turn, or on a turn's arrows."""
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        user.engine.reply = "\n".join(f"line {number}" for number in range(60))
        await user.ask("one")
        transcript = user.chat.transcript
        reply = shown_in(transcript)[-1].entry
        await user.sees("line 59")
        before = user.text.splitlines()[:10]
        await user.pilot.click(transcript, offset=(8, 5))
        await user.until(lambda: transcript.selected == reply.turn, "the click")
        await user.pilot.pause()
        assert user.text.splitlines()[:10] == before
        await user.press("escape")
        await user.command("chat.again")
        await user.idle()
        await user.press("ctrl+home")
        await user.sees("◂ 2/2 ▸")
        row = next(y for y, line in enumerate(user.text.splitlines()) if "◂ 2/2 ▸" in line)
        await user.pilot.click(offset=(3, row))
        await user.sees("◂ 1/2 ▸")
        assert "◂ 1/2 ▸" in user.text.splitlines()[row]


async def test_what_comes_below_the_view_of_a_reader_is_told(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        user.engine.reply = "\n".join(f"line {number}" for number in range(200))
        await user.ask("one", rounds=20)
        assert "new text below" not in user.text
        await user.press("pageup")
        await user.more_rounds(1)
        await user.sees("new text below")
        line = user.text.splitlines()[1]
        await user.more_rounds(20)
        assert user.text.splitlines()[1] == line
        await user.pilot.click("#new-below", offset=(4, 0))
        await user.until(lambda: "new text below" not in user.text, "the end")
        await user.more_rounds(5)
        assert "new text below" not in user.text


async def test_a_turn_is_deleted_and_comes_back(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await asked(user, "one", "two")
        await user.command("chat.delete_turn")
        await user.until(lambda: questions(user) == ["one"], "one question")
        await user.sees("restores it")
        await user.command("chat.undo_delete")
        await user.until(lambda: questions(user) == ["one", "two"], "two questions")


async def test_escape_selects_nothing_first_and_then_stops_the_reply(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await asked(user, "one")
        user.engine.reply = REPLY
        await user.ask("two", rounds=1)
        await user.command("chat.turn_before")
        await user.press("escape")
        assert user.chat.transcript.selected is None
        assert not user.engine.requests(protocol.Cancel)
        await user.press("escape")
        await user.until(lambda: user.engine.requests(protocol.Cancel), "the stop")


async def test_letters_are_commands_while_a_turn_is_selected_by_a_key(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("Why?")
        assert "e edit" not in user.text
        await user.command("chat.turn_before")
        await user.sees("Esc deselect  e edit  r again  y copy  . inside")
        await user.press("y")
        await user.until(lambda: "Pythagorean" in user.app.clipboard, "the copy")
        await user.press("up", "e")
        await user.until(lambda: user.prompt.text == "Why?" and user.prompt.has_focus, "the edit")
        await user.press("escape")
        await user.command("chat.turn_before")
        await user.type("hello")
        assert user.prompt.text == "hello"
        # The letters are text again; with the leader's key they are commands.
        await user.sees("^G E edit")
        await user.press("escape")
        await user.until(lambda: "edit" not in user.text.splitlines()[-1], "no turn selected")


async def test_an_edit_that_is_typed_when_its_question_goes_stays_and_can_be_sent(
    drive: Drive,
) -> None:
    async with drive() as user:
        await user.open_chat()
        user.prompt.load_text("second")
        user.engine.budget = 0
        await user.press("enter")
        await user.until(lambda: user.chat.session.running is not None, "the request")
        await user.command("chat.edit")
        await user.type(" and third")
        await user.press("ctrl+c")
        await user.idle()
        assert user.prompt.text == "second and third"
        user.engine.budget = None
        await user.press("enter")
        await user.until(lambda: questions(user) == ["second and third"], "its question")
        await user.idle()
        await user.press("up")
        await user.press("up")
        assert user.prompt.text == "second"


async def test_the_panel_stays_away_when_another_setting_of_the_screen_changes(
    drive: Drive,
) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.command("chat.pane", "chat.view")
        assert user.chat.has_class("-panel-hidden")

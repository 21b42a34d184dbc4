"""Commands are typed in the prompt, completed by keys and mouse, and done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eaglechat.tui.screens.help import HelpScreen
from eaglechat.tui.widgets.prompt.prompt import Completions
from eaglechat.wire import protocol
from tests.tui.driving import WIDE, Driver

Drive = Callable[..., Driver]


def offered(user: Driver) -> list[str]:
    offered = user.chat.query_one(Completions).offered
    return [one.shown for one in offered.completions] if offered else []


@pytest.mark.parametrize("size", [(80, 24), WIDE])
async def test_a_command_is_chosen_with_keys(drive: Drive, size: tuple[int, int]) -> None:
    async with drive(size=size) as user:
        await user.open_chat()
        await user.type("/")
        await user.sees("Let measurement choose the draft length")
        popup = user.chat.query_one(Completions)
        assert user.inside(popup.region)
        assert popup.region.bottom == user.prompt.region.y
        await user.type("pan")
        await user.until(lambda: offered(user) == ["/panel"], "one command")
        shown = user.chat.classes
        await user.press("enter")
        await user.until(lambda: user.chat.classes != shown, "the panel")
        assert user.prompt.text == ""
        assert offered(user) == []


async def test_a_value_is_typed_behind_a_command(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.type("/te")
        await user.press("tab")
        assert user.prompt.text == "/temp "
        await user.sees("between 0 and 5")
        await user.type("0.3")
        await user.press("enter")
        await user.until(lambda: user.chat.session.controls.temperature == 0.3, "the temperature")
        await user.type("/n 99")
        await user.press("enter")
        await user.sees("99 must be between 0 and 16")
        assert user.prompt.text == "/n 99"
        assert not user.engine.requests(protocol.Chat)


async def test_a_control_that_the_screen_does_not_show_is_said_when_it_is_set(
    drive: Drive,
) -> None:
    async with drive(size=(120, 36)) as user:
        await user.open_chat()
        for typed in ("/n 5", "/temp 0.4", "/ngram"):
            await user.ask(typed)
        await user.ask("/shape tree")
        await user.sees("From the next reply on: shape tree.")
        assert len(user.notices) == 1
        await user.ask("hello", rounds=2)
        await user.ask("/p_min 0.2", rounds=2)
        await user.sees("From the next round on: p_min 0.20.")
        await user.ask("/drafter none", rounds=2)
        await user.sees("From the next reply on: drafter none.")
        await user.ask("/think on", rounds=2)
        await user.sees("thinking has no effect: the model's chat template has no switch for it.")


async def test_the_strip_of_a_small_terminal_shows_the_length_alone(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.ask("/n 5")
        await user.sees("length 5")
        assert not user.notices
        await user.ask("/temp 0.4")
        await user.sees("From the next reply on: temp 0.40.")
        await user.ask("/ngram")
        await user.sees("From the next reply on: n-grams off.")


async def test_arrows_move_escape_closes_and_stops_nothing(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.ask("hello", rounds=2)
        await user.type("/")
        popup = user.chat.query_one(Completions)
        await user.press("down", "down", "up")
        assert popup.highlighted == 1
        await user.press("escape")
        assert offered(user) == []
        assert user.chat.session.running is not None
        await user.type("he")
        assert offered(user) == []
        await user.press("backspace", "backspace", "backspace", "slash", "h", "e", "l")
        await user.until(lambda: offered(user)[:1] == ["/help"], "offered anew")
        await user.press("escape", "escape")
        await user.idle()


async def test_a_click_takes_a_row(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.type("/help")
        await user.sees("All keys of this screen")
        await user.click("#completions")
        await user.on(HelpScreen)
        assert user.prompt.text == ""


async def test_what_is_no_command_is_not_sent_and_two_slashes_are_text(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.type("/etc/hosts holds what")
        await user.press("enter")
        await user.sees("There is no command /etc/hosts.")
        assert user.prompt.text == "/etc/hosts holds what"
        assert not user.engine.requests(protocol.Chat)
        await user.press("home", "slash", "enter")
        await user.until(lambda: len(user.messages) == 2, "a reply")
        assert user.messages[0].content == "/etc/hosts holds what"

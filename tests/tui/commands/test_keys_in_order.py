"""Keys that arrive faster than the screen is drawn, as after the machine has stalled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from textual import events
from textual.screen import Screen
from textual.widgets import Input

from eaglechat.settings.model import Settings
from eaglechat.tui.commands.keys import keys_of
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.tui.screens.more import MoreScreen
from eaglechat.tui.screens.past.chats import ChatsScreen
from eaglechat.tui.screens.settings import SettingsScreen
from eaglechat.tui.widgets.find_bar import FindBar
from tests.tui.driving import Driver, pressed
from tests.tui.scripted_desk import Halting, ScriptedDesk, entry, on_its_way

Drive = Callable[..., Driver]


def at_once(user: Driver, *keys: str) -> None:
    for key in keys:
        character = " " if key == "space" else key if len(key) == 1 else None
        user.app.post_message(events.Key(key, character))


def keys(command: str) -> list[str]:
    return pressed(keys_of(command)[0])


async def test_keys_that_come_at_once_are_taken_in_their_order(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        user.prompt.replace_all("half a thought")
        at_once(user, *(["backspace"] * len("half a thought")), *"acb")
        at_once(user, "left", "backspace", "right", "c")
        await user.until(lambda: user.prompt.text == "abc", "what was typed")


async def test_what_is_typed_behind_a_command_goes_to_what_it_opens(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("a fox")
        user.prompt.replace_all("a draft")

        at_once(user, *keys("chat.find"), *"fox")
        bar = user.chat.query_one(FindBar)
        await user.until(lambda: bar.value == "fox", "the words in the line")
        at_once(user, "x", "backspace", "escape", *"es", *keys("chats.open"), *"hen")
        await user.on(ChatsScreen)
        words = user.app.screen.query_one("#filter", Input)
        await user.until(lambda: words.value == "hen", "the words in the filter")
        assert (bar.value, user.prompt.text) == ("fox", "a draftes")
        await user.press("escape", "escape")
        at_once(user, *keys("app.settings"), *"temp")
        await user.on(SettingsScreen)
        words = user.app.screen.query_one("#filter", Input)
        await user.until(lambda: words.value == "temp", "the words in the filter")


async def test_what_is_typed_behind_enter_goes_to_what_it_opens(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.command("app.settings", to=SettingsScreen)
        settings = user.app.screen
        words = settings.query_one("#filter", Input)
        # As fast as it can come: the filter, its row, the value, another row with its value.
        at_once(user, *"generation.temp", "enter", *(["backspace"] * 8), *"0.25", "enter")
        await user.until(lambda: current(user).generation.temperature == 0.25, "the temperature")
        at_once(
            user, *"x", *(["backspace"] * 20), *"top_k", "enter", *"40", "enter", "escape", *"p"
        )
        await user.until(lambda: current(user).generation.top_k == 40, "top_k")
        await user.until(lambda: user.app.screen is settings and words.value == "p", "the filter")
        await user.press("escape", "escape", to=ChatScreen)
        at_once(user, *"/settings", "enter", *"theme")
        await user.on(SettingsScreen)
        words = user.app.screen.query_one("#filter", Input)
        await user.until(lambda: words.value == "theme", "the words in the filter")
        assert user.prompt.text == ""


async def test_keys_for_a_list_that_is_being_opened_move_in_it(drive: Drive) -> None:
    desk = ScriptedDesk()
    desk.moving = [on_its_way(entry(name)) for name in ("one", "two", "three")]
    desk.downloads = halting = Halting(desk)
    async with drive(desk=desk) as user:
        await user.on(MenuScreen)
        at_once(user, *keys("app.downloads"), "end", "up", "space")
        await user.until(lambda: halting.asked == [("pause", "two")], "the second is paused")
        await user.press("escape", to=MenuScreen)
        await user.open_chat()
        await user.ask("a fox")
        at_once(user, *keys("chat.export"), "end", "enter")
        await user.until(lambda: "a fox" in user.app.clipboard, "the last choice")


def current(user: Driver) -> Settings:
    return user.app.services.settings.current


@pytest.mark.parametrize("way", ["from the menu", "resumed in the chat", "resumed in the menu"])
async def test_no_key_is_lost_while_a_chat_is_opened(drive: Drive, way: str) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("An old question about a fox")
        if way == "resumed in the chat":
            await user.command("chat.new")
        else:
            await user.command("chat.menu", to=MenuScreen)
        if way == "from the menu":
            await user.type("built-in")
            await user.sees_row("smollm2-135m", "fits")
        else:
            await user.command("chats.open", to=ChatsScreen)
            await user.sees("An old question")
        at_once(user, "enter", *"Why", "space", *"is", "space", *"the", "space", *"sky")
        await user.on(ChatScreen)
        await user.until(lambda: user.prompt.text == "Why is the sky", "all that was typed")
        assert [one.content for one in user.messages[:1]] == (
            [] if way == "from the menu" else ["An old question about a fox"]
        )


async def test_the_columns_come_when_no_second_key_does(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Screen[Any]] = []
    async with drive() as user:
        await user.open_chat()
        user.app.screen_change_signal.subscribe(user.app, shown.append)
        at_once(user, *keys("chat.speculation"))
        await user.until(lambda: not user.chat.session.controls.enabled, "no speculation")
        # A key without a command shows what there is.
        at_once(user, *keys("app.leader"), "ctrl+b", *keys("chat.speculation")[1:], *"typed")
        await user.until(lambda: user.prompt.text == "typed", "what was typed behind it")
        assert user.chat.session.controls.enabled
        at_once(user, *keys("app.leader"))
        await user.on(MoreScreen)
        await user.press("escape", to=ChatScreen)
        assert shown.count(user.app.screen) == 2


async def test_the_app_ends_while_a_screen_is_made(drive: Drive) -> None:
    async with drive() as user:
        await user.on(MenuScreen)
        await user.sees("● smollm2-135m")
        at_once(user, "enter")
        while user.app.screen.is_mounted:
            await asyncio.sleep(0)
    await user.until_closed()

"""Keys that arrive faster than the screen is drawn, as after the machine has stalled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual import events
from textual.widgets import Input

from eaglechat.tui.commands.registry import keys_of
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.tui.screens.past.chats import ChatsScreen
from eaglechat.tui.widgets.find_bar import FindBar
from tests.tui.driving import Driver, pressed

Drive = Callable[..., Driver]


def at_once(user: Driver, *keys: str) -> None:
    for key in keys:
        user.app.post_message(events.Key(key, key if len(key) == 1 else None))


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
        await user.until(lambda: bar.text == "fox", "the words in the line")
        at_once(user, "escape", *"es", *keys("chats.open"), *"hen")
        await user.on(ChatsScreen)
        words = user.app.screen.query_one("#filter", Input)
        await user.until(lambda: words.value == "hen", "the words in the filter")
        at_once(user, "escape", "escape", *"!")
        await user.until(lambda: user.prompt.text == "a draftes!", "the rest in the prompt")


async def test_the_app_ends_while_keys_are_on_their_way(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        at_once(user, "end", "home", "end")
    await user.until_closed()
    assert not user.app.is_taking_keys


async def test_the_app_ends_while_a_screen_is_made(drive: Drive) -> None:
    async with drive() as user:
        await user.on(MenuScreen)
        await user.sees("● smollm2-135m")
        at_once(user, "enter")
        while user.app.screen.is_mounted:
            await asyncio.sleep(0)
    await user.until_closed()

"""Keys that arrive faster than the screen is drawn, as after the machine has stalled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from textual import events
from textual.message_pump import MessagePump
from textual.widgets import Input

from eaglechat.tui import keys_in_order
from eaglechat.tui.commands.registry import keys_of
from eaglechat.tui.keys_in_order import KeysInOrder
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


async def test_a_key_is_not_done_before_what_is_called_back_for_it(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with drive() as user:
        await user.open_chat()
        app, chat = user.app, user.chat
        follow, late, ends = app.follow_key, [chat.action_find], list[events.Event]()

        async def called_back_late(key: events.Event, way: Sequence[MessagePump]) -> None:
            if not way:
                ends.append(key)
            if len(ends) == 2 and late:
                # The second time at the end of the way, the next key would be taken. Without
                # `check_idle` the callback waits, as it does while other messages are in the queue.
                assert ends[0] is ends[1]
                with monkeypatch.context() as patched:
                    patched.setattr(app, "check_idle", lambda: None)
                    app.call_next(late.pop())
            await follow(key, way)

        monkeypatch.setattr(app, "follow_key", called_back_late)
        at_once(user, "end", "b")
        bar = chat.query_one(FindBar)
        await user.until(lambda: bar.text + user.prompt.text, "what was typed")
        assert (user.prompt.text, bar.text) == ("", "b")


async def test_a_key_that_is_not_done_holds_up_others_only_so_long(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_app: KeysInOrder, _key: events.Event, _way: object) -> None:
        """Stands for a key whose effects are never done."""

    monkeypatch.setattr(keys_in_order, "PATIENCE_S", 0.0)
    async with drive() as user:
        await user.open_chat()
        monkeypatch.setattr(KeysInOrder, "follow_key", never)
        at_once(user, "end", "b")
        await user.until(lambda: user.prompt.text == "b", "what was typed")


async def test_letters_of_a_text_do_not_wait_for_each_other(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[events.Event] = []

    async def follow(app: KeysInOrder, key: events.Event, way: Sequence[MessagePump]) -> None:
        followed.append(key)
        await done(app, key, way)

    async with drive() as user:
        await user.open_chat()
        done = KeysInOrder.follow_key
        monkeypatch.setattr(KeysInOrder, "follow_key", follow)
        at_once(user, "end", *"abcdefgh", "end")
        await user.until(lambda: user.prompt.text == "abcdefgh", "what was typed")
        await user.until(lambda: not user.app.is_taking_keys, "all keys done")
        assert len({id(key) for key in followed}) <= 4


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

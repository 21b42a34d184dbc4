"""Keys that come faster than the screen is drawn, as after a pause of the machine."""

from __future__ import annotations

from collections.abc import Callable

from textual import events

from tests.tui.driving import Driver

Drive = Callable[..., Driver]


async def test_keys_that_come_at_once_are_taken_in_their_order(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        user.prompt.replace_all("half a thought")
        for _ in "half a thought":
            user.app.post_message(events.Key("backspace", "\x7f"))
        for letter in "acb":
            user.app.post_message(events.Key(letter, letter))
        user.app.post_message(events.Key("left", None))
        user.app.post_message(events.Key("backspace", "\x7f"))
        user.app.post_message(events.Key("right", None))
        user.app.post_message(events.Key("c", "c"))
        await user.until(lambda: user.prompt.text == "abc", "what was typed")

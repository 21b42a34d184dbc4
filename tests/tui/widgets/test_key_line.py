"""The bottom line is made anew where its keys change, and only there."""

from __future__ import annotations

from collections.abc import Callable

from tests.tui.driving import Driver

Drive = Callable[..., Driver]


async def test_the_keys_stay_until_others_hold(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.press("a", "backspace")
        keys = list(user.chat.query("FooterKey"))
        assert keys
        user.chat.screen.set_focus(None)
        user.prompt.take_focus()
        await user.press("b")
        assert list(user.chat.query("FooterKey")) == keys
        await user.ask("hello", rounds=2)
        await user.until(
            lambda: (
                any(not key.has_class("-disabled") for key in user.chat.query("FooterKey"))
                and list(user.chat.query("FooterKey")) != keys
            ),
            "the key that stops the reply",
        )

"""Up and Down walk through what was sent, and lose nothing that is written on the way."""

from __future__ import annotations

from collections.abc import Callable

from tests.tui.driving import Driver

Drive = Callable[..., Driver]


async def test_what_is_changed_on_a_walk_is_there_on_the_way_back(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        for text in ("first", "second"):
            user.prompt.load_text(text)
            user.prompt.take()
        await user.type("draft")
        await user.press("up")
        assert user.prompt.text == "second"
        await user.type(" edited")
        await user.press("up")
        assert user.prompt.text == "first"
        await user.press("down")
        assert user.prompt.text == "second edited"
        await user.press("down")
        assert user.prompt.text == "draft"
        await user.press("up")
        assert user.prompt.text == "second edited"

        user.prompt.take()
        await user.press("up", "up")
        assert user.prompt.text == "draft"
        await user.press("up")
        assert user.prompt.text == "second"

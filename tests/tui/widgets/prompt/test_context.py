"""The context in the app, and the warning before it is full."""

from __future__ import annotations

from collections.abc import Callable

from eaglechat.tui.screens.dialogs import Ask
from eaglechat.wire import protocol
from tests.tui.driving import Driver

Drive = Callable[..., Driver]


async def test_the_context_is_shown_by_turn(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.ask("why is the sky blue?")
        await user.command("chat.context")
        await user.on(Ask)
        await user.sees("of 8,192 tokens are used")
        await user.sees("why is the sky blue?")
        await user.sees("tested draft tokens (")
        await user.sees("mean accepted length ")


async def test_a_question_that_fills_the_context_is_asked_about_first(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        user.prompt.load_text("word " * 8000)
        await user.press("enter")
        await user.until(
            lambda: any("little or no room" in said for said in user.notices), "a warning"
        )
        assert not user.engine.requests(protocol.Chat)
        await user.press("enter")
        await user.until(lambda: user.engine.requests(protocol.Chat), "the question")

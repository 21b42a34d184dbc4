"""What the model would read, in a dialog: the engine renders it, the chat goes on as it was."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from textual.containers import VerticalScroll

from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.chat.seen import SeenScreen, prompt_seen
from eaglechat.wire import protocol
from eaglechat.wire.protocol import Rendered
from tests.tui.driving import WIDE, Driver

Drive = Callable[..., Driver]


def test_what_stands_above_a_prompt_says_what_is_not_in_it() -> None:
    prompt = Rendered(id=1, runs=(), tokens=60, first_turn=1, checkpoints=2, checkpoint_bytes=2**20)
    assert prompt_seen(prompt, 8192, "") == (
        "60 of 8,192 tokens; the first turn is not in the context; 2 checkpoints to go back to, "
        "1.0 MiB; “hi” stands for the question that you have not typed yet."
    )
    two = msgspec.structs.replace(prompt, first_turn=2, checkpoints=0)
    assert prompt_seen(two, 8192, "why?") == (
        "60 of 8,192 tokens; the first 2 turns are not in the context."
    )


@pytest.mark.parametrize("size", [(80, 24), WIDE])
async def test_the_prompt_is_shown_with_what_is_typed(drive: Drive, size: tuple[int, int]) -> None:
    async with drive(size=size) as user:
        await user.open_chat()
        await user.ask("Which colour?")
        await user.type("And another?")
        await user.command("chat.prompt", to=SeenScreen)
        await user.sees("60 of 8,192 tokens.")
        await user.sees("And another?")
        await user.sees("<|assistant|>")

        await user.command("chat.copy")
        copied = user.app.clipboard
        assert copied.startswith("<|user|>\nWhich colour?\n<|assistant|>\nThe Pythagorean")
        assert copied.endswith("<|user|>\nAnd another?\n<|assistant|>")

        await user.press("escape", to=ChatScreen)
        assert user.prompt.text == "And another?"
        assert len(user.messages) == 2


async def test_it_is_asked_for_as_the_next_reply_would_be(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        user.chat.action_control("thinking", "off")
        await user.command("chat.prompt", to=SeenScreen)
        (render,) = user.engine.requests(protocol.Render)
        assert render.thinking.enabled is False


async def test_a_long_prompt_scrolls_and_begins_with_its_end(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        user.prompt.load_text("\n".join(f"line {i}" for i in range(200)))
        await user.command("chat.prompt")
        await user.sees("line 199")
        text = user.app.screen.query_one(VerticalScroll)
        await user.press("home")
        await user.sees("line 0")
        await user.press("pagedown")
        await user.until(lambda: text.scroll_y > 0, "a page down")


async def test_the_reason_why_a_prompt_cannot_be_shown_is_told(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        user.engine.chat_error = ("prompt", "the template refuses this")
        await user.command("chat.prompt")
        await user.sees("The template refuses this.")
        user.engine.chat_error = None
        await user.ask("go", rounds=2)
        await user.command("chat.prompt")
        await user.sees("A reply is being written")
        assert not isinstance(user.app.screen, SeenScreen)


async def test_an_engine_that_shows_none_says_so(drive: Drive) -> None:
    user = drive()
    user.engine.engine_name = "llama-server"
    user.engine.can = msgspec.structs.replace(user.engine.can, prompt=False)
    async with user:
        await user.open_chat()
        await user.command("chat.prompt")
        await user.sees("llama-server does not show prompts.")
        assert not user.engine.requests(protocol.Render)

"""Saved chats in the app: models that are gone, a file that is no chat, a chat open elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from eaglechat.hub.local.pairs import pair_of_files
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.dialogs import Ask
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.wire import protocol
from tests.chat.headless import saved_chats
from tests.chat.test_older import OLDER
from tests.ggufs import write_target
from tests.tui.driving import Driver

Drive = Callable[..., Driver]


async def test_a_chat_whose_models_are_gone_can_be_read_and_goes_on_when_they_are_back(
    drive: Drive, models: Path
) -> None:
    other = write_target(models / "other.gguf")
    async with drive(start=pair_of_files(other, None)) as user:
        await user.on(ChatScreen)
        await user.ask("on the other models")
        await user.press("ctrl+o")
        await user.on(MenuScreen)
        other.rename(models / "away.gguf")
        await user.press("ctrl+t")
        await user.sees("1 chat")
        await user.press("enter")
        await user.sees("read-only")
        await user.sees("sides of 3 and 4")
        await user.type("more")
        await user.press("enter")
        assert user.prompt.text == "more"
        assert len(user.engine.requests(protocol.Chat)) == 1
        (models / "away.gguf").rename(other)
        await user.press("ctrl+l")
        await user.sees("The models are loaded again")
        await user.press("enter")
        await user.idle()
        assert len(user.messages) == 4


async def test_chats_of_an_earlier_version_are_taken_over_and_what_is_none_is_named(
    drive: Drive, tmp_path: Path
) -> None:
    shutil.copytree(OLDER, tmp_path / "chats", ignore=shutil.ignore_patterns("*.json"))
    (tmp_path / "chats" / "broken.jsonl").write_bytes(b"\xff nothing")
    # The menu has the last three of the four.
    (tmp_path / "chats" / "comparison.jsonl").touch()
    async with drive() as user:
        await user.on(MenuScreen)
        await user.sees("compare")
        await user.until(
            lambda: any("broken.jsonl (it does not begin like a chat)" in s for s in user.notices),
            "the reason",
        )
        await user.press("ctrl+t")
        await user.sees("4 chats")
        await user.press("enter", to=ChatScreen)
        await user.sees("Because of reasons")


async def test_chats_that_cannot_be_used_are_moved_aside_with_a_sentence(
    drive: Drive, tmp_path: Path
) -> None:
    (tmp_path / "chats.sqlite3").write_bytes(b"noise" * 1000)
    async with drive() as user:
        await user.on(MenuScreen)
        await user.until(
            lambda: any("The file is now chats.aside-" in said for said in user.notices),
            "the sentence",
        )
        await user.open_chat()
        await user.ask("hello")
        assert len(user.messages) == 2
    assert len(saved_chats(tmp_path)) == 1


@pytest.mark.parametrize(
    "key", ["ctrl+q", *(pytest.param(key, marks=pytest.mark.slow) for key in ("ctrl+o", "ctrl+n"))]
)
async def test_a_chat_the_disk_does_not_take_is_left_when_its_user_agrees(
    drive: Drive, tmp_path: Path, key: str
) -> None:
    (tmp_path / "file").write_text("a file where the folder would be")
    async with drive(chats_file=tmp_path / "file" / "chats.sqlite3") as user:
        await user.open_chat()
        await user.ask("hello")
        await user.sees("This chat cannot be saved")
        await user.press(key)
        await user.on(Ask)
        await user.press("escape")
        await user.on(ChatScreen)
        assert user.chat.session.turns
        await user.press(key)
        await user.on(Ask)
        await user.press("y")
        await user.until(lambda: not user.app.is_running or not _turns(user), "the chat was left")


def _turns(user: Driver) -> int:
    """Of the chat that is open."""
    chats = [one for one in user.app.screen_stack if isinstance(one, ChatScreen)]
    return len(chats[0].session.turns) if chats else 0


async def test_a_reply_of_a_thousand_unclosed_marks_is_shown_and_shown_again(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        user.engine.reply = "**Note: " * 1100
        await user.ask("loop")
        await user.press("ctrl+o", to=MenuScreen)
        await user.sees_row("loop")
        await user.press("ctrl+t")
        await user.sees("1 chat")
        await user.press("enter", to=ChatScreen)
        for _ in range(3):
            await user.command("chat.view")
            await user.sees("**Note: **Note:")
        await user.pilot.resize_terminal(60, 20)
        await user.sees("Note:")
        assert user.messages[-1].content == user.engine.reply

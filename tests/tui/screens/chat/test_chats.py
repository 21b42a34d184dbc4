"""The list of chats: found by what was said, renamed, pinned, deleted, brought back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import Input, OptionList

from eaglechat.chat.recorder import ChatRecorder
from eaglechat.chat.store import ChatStore
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.dialogs import Ask
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.tui.screens.past.chats import ChatsScreen
from eaglechat.tui.widgets.filter import Row
from tests.chat.headless import left_chat, saved_chats, store_in
from tests.tui.driving import Driver
from tests.tui.textual_private import Gate

Drive = Callable[..., Driver]


@pytest.fixture
def three(tmp_path: Path, models: Path) -> list[str]:
    """Chats on the pair of the menu, the newest last."""
    return [
        left_chat(tmp_path, question, reply=reply)
        for question, reply in (
            ("Why is the sky blue?", "Because of Rayleigh scattering."),
            ("What is a monad?", "A monoid of endofunctors."),
            ("Hello", "Good evening."),
        )
    ]


async def to_list(user: Driver) -> None:
    await user.on(MenuScreen)
    await user.command("chats.open")
    await user.on(ChatsScreen)
    await user.sees("3 chats")


def rows(user: Driver) -> list[str]:
    options = user.app.screen.query_one(OptionList).options
    return [option.prompt.plain for option in options if isinstance(option.prompt, Row)]


async def test_typing_finds_titles_and_passages(drive: Drive, three: list[str]) -> None:
    async with drive() as user:
        await to_list(user)
        await user.type("rayleigh scat")
        await user.sees("1 passage")
        assert "Because of Rayleigh scattering." in user.text
        user.app.screen.query_one(Input).value = "mona"
        await user.sees("1 chat by title, 1 passage")
        user.app.screen.query_one(Input).value = '"no such'
        await user.sees("Nothing found")
        await user.press("enter")
        assert isinstance(user.app.screen, ChatsScreen)


async def test_enter_opens_the_chat_at_the_passage(drive: Drive, three: list[str]) -> None:
    async with drive() as user:
        await to_list(user)
        await user.type("rayleigh")
        await user.sees("1 passage")
        await user.press("enter")
        await user.on(ChatScreen)
        await user.sees("Rayleigh scattering")
        assert user.chat.session.chat.name == three[0]
        assert user.chat.transcript.marked is not None


async def test_enter_that_comes_before_the_rows_opens_what_comes(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, three: list[str]
) -> None:
    gate = Gate()
    for name in ("listed", "find"):
        ask = getattr(ChatStore, name)
        monkeypatch.setattr(ChatStore, name, lambda *of, ask=ask: gate.wait() and ask(*of))
    async with drive() as user:
        await user.on(MenuScreen)
        await user.command("chats.open")
        await user.on(ChatsScreen)
        await user.type("rayleigh")
        await user.press("enter")
        gate.set()
        await user.on(ChatScreen)
        assert user.chat.session.chat.name == three[0]


async def test_a_chat_is_renamed_pinned_deleted_and_brought_back(
    drive: Drive, tmp_path: Path, three: list[str]
) -> None:
    async with drive() as user:
        await to_list(user)
        await user.press("down", "down")
        await user.command("chats.rename")
        await user.on(Ask)
        field = user.app.screen.query_one(Input)
        assert field.value == "Why is the sky blue?"
        field.value = "The sky"
        await user.press("enter")
        await user.on(ChatsScreen)
        await user.until(lambda: "The sky" in rows(user)[2], "the new title")
        await user.command("chats.pin")
        await user.until(lambda: "pinned" in rows(user)[0], "the pin")
        assert store_in(tmp_path).read(three[0]).pinned
        # The highlight stays on the chat.
        await user.command("list.remove")
        await user.sees("2 chats")
        assert len(saved_chats(tmp_path)) == 2
        await user.command("chat.undo_delete")
        await user.sees("3 chats")
        assert "The sky" in rows(user)[0]
        await user.command("chat.undo_delete")
        await user.sees("There is no deleted chat to restore.")


async def test_the_open_chat_is_renamed_and_not_deleted(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[threading.Thread] = set()
    keep = ChatRecorder.keep

    def noted(recorder: ChatRecorder) -> None:
        threads.add(threading.current_thread())
        keep(recorder)

    monkeypatch.setattr(ChatRecorder, "keep", noted)
    async with drive() as user:
        await user.open_chat()
        await user.ask("mine")
        await user.command("chats.open")
        await user.on(ChatsScreen)
        await user.sees("1 chat")
        assert rows(user)[0].splitlines()[1].startswith("open  just now ")
        await user.command("list.remove")
        await user.sees("This chat is open.")
        await user.command("chats.rename")
        await user.on(Ask)
        user.app.screen.query_one(Input).value = "renamed"
        await user.press("enter")
        await user.on(ChatsScreen)
        await user.until(lambda: "renamed" in rows(user)[0], "the new title")
        await user.press("enter")
        await user.on(ChatScreen)
        await user.ask("more")
        assert len(user.messages) == 4
        await user.press("ctrl+o")
        await user.on(MenuScreen)
        (saved,) = saved_chats(tmp_path)
        assert (saved.title, len(saved.turns)) == ("renamed", 4)
    # One thread writes to a chat.
    assert len(threads) == 1


async def test_find_in_all_chats_begins_with_the_words_that_are_typed(
    drive: Drive, three: list[str]
) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.type("/find monoid")
        # As once a second, whoever takes longer to type.
        user.chat.save()
        await user.press("enter")
        await user.on(ChatsScreen)
        await user.sees("1 passage")

"""Exporting the open chat: by the dialog, and by a command with a format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.app import App
from textual.widgets import Input, OptionList

from eaglechat.hub.local.pairs import pair_of_files
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.past.chats import ChatsScreen
from eaglechat.tui.screens.past.export import ExportScreen
from tests.tui.driving import Driver

Drive = Callable[..., Driver]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


async def test_a_chat_is_written_to_a_file_of_its_own(drive: Drive, here: Path) -> None:
    """From its screen, by a command, from the list of chats."""
    async with drive() as user:
        await user.open_chat()
        await user.command("chat.export")
        await user.sees("nothing to export yet")
        await user.ask("Why?")
        for name in ("Why.md", "Why-2.md"):
            await user.command("chat.export")
            await user.on(ExportScreen)
            await user.press("enter")
            await user.on(ChatScreen)
            await user.until((here / name).exists, name)
        assert "# Why?" in (here / "Why.md").read_text("utf-8")
        await user.type("/export json")
        await user.press("enter")
        await user.until((here / "Why.json").exists, "the file")
        assert json.loads((here / "Why.json").read_text("utf-8"))["title"] == "Why?"
        await user.on(ChatScreen)
        await user.command("chats.open")
        await user.on(ChatsScreen)
        await user.sees("1 chat")
        await user.command("chat.export")
        await user.on(ExportScreen)
        await user.press("enter")
        await user.until((here / "Why-3.md").exists, "the file")


async def test_a_chat_that_cannot_be_saved_can_be_copied(
    drive: Drive, here: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "file").write_text("")
    copied: list[str] = []
    monkeypatch.setattr(App, "copy_to_clipboard", lambda _app, text: copied.append(text))
    pair = pair_of_files(models / "target.gguf", models / "draft.gguf")
    async with drive(start=pair, chats_file=here / "file" / "chats.sqlite3") as user:
        await user.on(ChatScreen)
        await user.ask("Why?")
        await user.command("chat.export")
        await user.on(ExportScreen)
        await user.press("end", "enter")
        await user.on(ChatScreen)
        await user.sees("Copied the chat as Markdown through the terminal")
    assert copied[0].startswith("# Why?")


async def test_a_folder_that_cannot_be_written_is_reported(drive: Drive, here: Path) -> None:
    (here / "file").write_text("")
    async with drive() as user:
        await user.open_chat()
        await user.ask("Why?")
        await user.command("chat.export")
        await user.on(ExportScreen)
        for folder in ("~nobody-of-this-name", "file", "\0"):
            user.app.screen.query_one("#folder", Input).value = folder
            await user.press("enter")
            await user.sees("The chat was not exported")
            assert isinstance(user.app.focused, Input)
            assert isinstance(user.app.screen, ExportScreen)
            user.app.clear_notifications()
            await user.until(lambda: "not exported" not in user.text, "no error")


async def test_the_choices_can_be_read_without_colour(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.ask("Why?")
        await user.command("chat.export")
        await user.on(ExportScreen)
        await user.sees("[ ] with the reasoning")
        assert user.app.screen.query_one(OptionList).size.height == 4
        await user.press("tab", "space")
        await user.sees("[X] with the reasoning")

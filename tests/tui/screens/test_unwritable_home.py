"""A home that cannot be written costs the history, and not the chat."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eaglechat.hub.local.pair_library import PairLibrary
from eaglechat.hub.local.pairs import pair_of_files
from eaglechat.tui.app import EagleApp
from eaglechat.tui.screens.chat.screen import ChatScreen
from tests.tui.driving import Driver

Drive = Callable[..., Driver]


async def test_a_chat_goes_on_without_a_history_and_says_so_once(
    drive: Drive, tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A directory cannot be made below a file, whoever asks for it.
    nowhere = tmp_path / "a-file"
    nowhere.write_text("")
    pair = pair_of_files(models / "target.gguf", models / "draft.gguf")
    places = {
        "config_file": nowhere / "config.toml",
        "chats_file": nowhere / "chats.sqlite3",
        "pairs": PairLibrary(nowhere / "state"),
    }
    notices: list[str] = []
    monkeypatch.setattr(EagleApp, "notify", lambda _app, text, **_: notices.append(text))

    def said(words: str) -> list[str]:
        return [text for text in notices if words in text]

    async with drive(start=pair, **places) as user:
        await user.on(ChatScreen)
        for question in ("hello", "and again"):
            await user.ask(question)
        assert [message.role for message in user.messages] == ["user", "assistant"] * 2
        await user.until(lambda: said("cannot be saved"), "what is not kept")
        await user.until(lambda: "not saved" in user.text.splitlines()[0], "the title")
        await user.ask("once more")
        user.chat.save()
        assert len(said("cannot be saved")) == 1
        user.app.services.settings.change("generation", "top_k", 7)
        assert said("holds until you quit")
        assert user.app.services.settings.current.generation.top_k == 7
        await user.press("ctrl+q", "left", "enter")
    await user.until_closed()

"""What the list of models here does with one: gets its newer version, or says who deletes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eaglechat.hub.downloads import newer
from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.local.library import look_at
from eaglechat.hub.local.model import LocalModel, Source
from eaglechat.hub.units import format_bytes
from eaglechat.tui.screens.dialogs import Ask
from eaglechat.tui.screens.hub.downloads import DownloadsScreen
from eaglechat.tui.screens.hub.library import LibraryScreen
from tests.ggufs import write_target
from tests.tui.driving import Driver
from tests.tui.scripted_desk import ScriptedDesk

Drive = Callable[..., Driver]
SIZE = (80, 24)


class Desk(ScriptedDesk):
    """With models here; `asked` is what its queue was given."""

    def __init__(self, *models: LocalModel) -> None:
        super().__init__()
        self.on_disk = list(models)
        self.asked: list[str] = []

    @property
    def hub(self) -> Any:
        return None

    def queue(self) -> Any:
        return SimpleNamespace(fetch=lambda name, _files: self.asked.append(name))


@pytest.fixture
def model(tmp_path: Path) -> LocalModel:
    found = look_at(write_target(tmp_path / "own" / "m.gguf"))
    return replace(found, name="user/repo/m.gguf", source=Source.HUGGING_FACE, repo="user/repo")


async def test_the_hub_is_asked_for_newer_versions_on_request_and_one_is_fetched(
    drive: Drive, model: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(model, replace(model, name="user/repo/other.gguf"))

    def first_is_newer(_hub: Hub, models: Sequence[LocalModel]) -> set[str]:
        desk.asked.append("newer")
        return {models[0].name}

    monkeypatch.setattr(newer, "newer", first_is_newer)
    monkeypatch.setattr(newer, "files", lambda _hub, _model: [])
    async with drive(size=SIZE, desk=desk) as user:
        await user.command("menu.library")
        await user.on(LibraryScreen)
        await user.sees("2 models")
        assert desk.asked == []
        await user.click_text("newer")
        await user.sees("1 newer on the Hub")
        await user.sees("newer on the Hub · user/repo/m.gguf")
        await user.command("library.newer")
        await user.on(DownloadsScreen)
        assert desk.asked == ["newer", "user/repo/m.gguf"]


async def test_a_deletion_says_whose_the_file_is_or_who_deletes_it(
    drive: Drive, model: LocalModel
) -> None:
    ollamas = replace(model, name="qwen3:8b", source=Source.OLLAMA, repo=None)
    mine = replace(model, name="lm/repo/m.gguf", source=Source.LM_STUDIO)
    async with drive(size=SIZE, desk=Desk(mine, ollamas)) as user:
        await user.command("menu.library")
        await user.on(LibraryScreen)
        await user.sees("2 models")
        await user.press("ctrl+d")
        await user.on(Ask)
        dialog = user.app.screen
        assert isinstance(dialog, Ask)
        assert f"{format_bytes(mine.size_bytes)}  {mine.path}" in str(dialog.name)
        await user.sees("LM Studio loses it too.")
        await user.press("escape", "down", "ctrl+d")
        await user.on(Ask)
        await user.sees("which is only read here; `ollama rm")

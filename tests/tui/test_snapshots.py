"""Pictures of screens. `pytest --snapshot-update` accepts changed ones: look at them first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from eaglechat.hub.downloads.client import RemoteRepo
from eaglechat.settings.model import InterfaceSettings, Settings
from eaglechat.tui.app import EagleApp
from eaglechat.tui.screens.hub.search import SearchScreen
from eaglechat.tui.widgets.prompt.prompt import Prompt
from tests.tui.driving import Driver
from tests.tui.scripted import ScriptedEngine
from tests.tui.scripted_desk import ScriptedDesk, entry

MakeApp = Callable[..., EagleApp]
Scene = Callable[[Driver], Awaitable[None]]


@pytest.fixture
def picture(snap_compare: Any, make_app: MakeApp, engine: ScriptedEngine) -> Callable[..., bool]:
    def compare(scene: Scene, size: tuple[int, int], theme: str = "eagle-dark") -> bool:
        chosen = Settings(interface=InterfaceSettings(theme=theme))
        app = make_app(settings=chosen, config_file=Path("config.toml"))

        async def run_before(pilot: Pilot[None]) -> None:
            driver = Driver(app, engine, size)
            driver.pilot = pilot
            await scene(driver)
            for field in (*app.screen.query(Prompt), *app.screen.query(Input)):
                field.cursor_blink = False
            await pilot.pause()

        return bool(snap_compare(app, terminal_size=size, run_before=run_before))

    return compare


async def menu(user: Driver) -> None:
    desk = user.app.services.desk
    assert isinstance(desk, ScriptedDesk)
    for name, megabytes in {"qwen3-4b": 2934, "qwen3-14b": 11_200, "llama-3.3-70b": 43_000}.items():
        desk.offer(entry(name, megabytes, converts=name == "qwen3-4b"))
    desk.offer(entry("of-8b"))
    desk.offer(entry("gpt-oss-20b", 13_000), bytes_here=1_100_000_000)
    await user.sees("● smollm2-135m")
    user.app.services.models_changed.publish(None)
    await user.sees("too large")
    await user.sees_row("gpt-oss-20b", "13.0 GB")
    await user.press(*["down"] * 4)


async def mid_reply(user: Driver) -> None:
    await user.open_chat()
    await user.ask("Explain the Pythagorean theorem", rounds=8)
    await user.press("f8", "f8")
    await user.more_rounds(5)
    user.chat.show_numbers()


async def auto_length(user: Driver) -> None:
    await user.open_chat()
    await user.command("chat.auto")
    await user.ask("Explain the Pythagorean theorem", rounds=13)
    user.chat.show_numbers()


async def compared(user: Driver) -> None:
    user.engine.plain_fork_at = 22
    await user.open_chat()
    await user.ask("/temp 0")
    await user.ask("Explain the Pythagorean theorem")
    await user.command("chat.compare")
    await user.sees("first difference")


async def search(user: Driver) -> None:
    await user.sees("● smollm2-135m")
    await user.command("menu.search")
    await user.on(SearchScreen)
    await user.type("small")
    await user.sees("lab/small-chat-GGUF")


async def settings(user: Driver) -> None:
    await user.sees("● smollm2-135m")
    await user.open_settings()


async def help_screen(user: Driver) -> None:
    await user.open_chat()
    await user.press("f1")
    await user.sees("Send the prompt")


@pytest.mark.parametrize(
    ("scene", "size", "theme"),
    [
        (menu, (120, 36), "eagle-dark"),
        (mid_reply, (80, 24), "eagle-dark"),
        (auto_length, (120, 36), "eagle-dark"),
        (compared, (120, 36), "eagle-light"),
        (help_screen, (80, 24), "eagle-dark"),
        (settings, (80, 24), "eagle-dark"),
    ],
    ids=["menu", "chat", "chat_with_panel", "compare", "help", "settings"],
)
def test_screen(
    picture: Callable[..., bool], scene: Scene, size: tuple[int, int], theme: str
) -> None:
    assert picture(scene, size, theme)


def test_search(picture: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    def hit(repo: str, downloads: int, *, gated: bool = False) -> RemoteRepo:
        return RemoteRepo(repo, gated=gated, licence="apache-2.0", downloads=downloads)

    class Found:
        @staticmethod
        def search(words: str = "", **how: object) -> list[RemoteRepo]:
            return [hit("org/small-GGUF", 1234), hit("lab/small-chat-GGUF", 56, gated=True)]

    monkeypatch.setattr(ScriptedDesk, "hub", Found)
    assert picture(search, (80, 24))

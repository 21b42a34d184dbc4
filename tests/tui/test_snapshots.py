"""Pictures of the screens. `pytest --snapshot-update` accepts changed ones: look at them first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from eaglechat.settings import InterfaceSettings, Settings
from eaglechat.tui.app import EagleApp
from eaglechat.tui.widgets.prompt import Prompt
from tests.tui.driving import Driver
from tests.tui.scripted import ScriptedEngine

MakeApp = Callable[..., EagleApp]
Scene = Callable[[Driver], Awaitable[None]]
THEMES = ("eagle-dark", "eagle-light")
SIZES = ((80, 24), (200, 50))


@pytest.fixture
def picture(snap_compare: Any, make_app: MakeApp, engine: ScriptedEngine) -> Callable[..., bool]:
    def compare(scene: Scene, size: tuple[int, int], theme: str = "eagle-dark") -> bool:
        settings = Settings(interface=InterfaceSettings(theme=theme))
        app = make_app(settings=settings)

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
    await user.sees("Q4_K_M")


async def mid_reply(user: Driver) -> None:
    await user.open_chat()
    await user.ask("Explain the Pythagorean theorem", rounds=8)
    await user.press("f8", "f8")
    await user.more_rounds(5)
    user.chat._show_numbers()


async def compared(user: Driver) -> None:
    user.engine.plain_fork_at = 22
    await user.open_chat()
    await user.ask("Explain the Pythagorean theorem")
    await user.press("ctrl+r")
    await user.idle()
    await user.sees("First difference")


async def folded_panel_open(user: Driver) -> None:
    await compared(user)
    await user.press("f2")


async def died(user: Driver) -> None:
    await user.open_chat()
    await user.ask("Explain the Pythagorean theorem", rounds=5)
    user.engine.die("llama_decode: failed to decode", "GGML_ASSERT(n_outputs > 0) failed")
    await user.sees("signal 6")


async def help_screen(user: Driver) -> None:
    await user.open_chat()
    await user.press("f1")
    await user.sees("Keys")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
def test_menu(picture: Callable[..., bool], size: tuple[int, int], theme: str) -> None:
    assert picture(menu, size, theme)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
def test_chat_in_mid_reply(picture: Callable[..., bool], size: tuple[int, int], theme: str) -> None:
    assert picture(mid_reply, size, theme)


@pytest.mark.parametrize("size", SIZES)
def test_comparison(picture: Callable[..., bool], size: tuple[int, int]) -> None:
    assert picture(compared, size)


@pytest.mark.parametrize("scene", [folded_panel_open, died, help_screen])
def test_at_80x24(picture: Callable[..., bool], scene: Scene) -> None:
    assert picture(scene, (80, 24))

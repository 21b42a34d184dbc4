"""Pictures of the screens. `pytest --snapshot-update` accepts changed ones: look at them first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input

from eaglechat.hub.local.installed import State, Status
from eaglechat.settings import InterfaceSettings, Settings
from eaglechat.tui.app import EagleApp
from eaglechat.tui.widgets.prompt.prompt import Prompt
from tests.tui.driving import WIDE, Driver
from tests.tui.scripted import ScriptedEngine
from tests.tui.scripted_desk import ScriptedDesk, entry, facts, on_its_way

MakeApp = Callable[..., EagleApp]
Scene = Callable[[Driver], Awaitable[None]]
THEMES = ("eagle-dark", "eagle-light")
SIZES = ((80, 24), WIDE)


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
    desk = user.app.services.desk
    assert isinstance(desk, ScriptedDesk)
    known = {"qwen3-4b": facts(2934), "qwen3-14b": facts(11_200), "llama-3.3-70b": facts(43_000)}
    for name, says in known.items():
        desk.offer(entry(name, converts=name == "qwen3-4b"), known=says)
    desk.offer(entry("gated-8b", licence="llama3.1"), known=facts(6100, gated=("org/gated-8b",)))
    half = Status(State.PARTLY, None, None, None, None, bytes_here=1_100_000_000)
    desk.offer(entry("gpt-oss-20b"), half, facts(13_000))
    await user.sees("Q4_K_M")
    await user.sees("of 8.0 GB GPU")
    user.app.services.installs.changed.publish(None)
    await user.sees("cannot run")
    await user.press("down", "down")


async def downloading(user: Driver) -> None:
    desk = user.app.services.desk
    assert isinstance(desk, ScriptedDesk)
    pair = entry("qwen3-4b", converts=True)
    desk.moving = [on_its_way(pair)]
    desk.offer(entry("qwen3-14b"), Status(State.PARTLY, None, None, None, None, 4_000_000_000))
    desk.left = ["qwen3-14b"]
    await user.sees("Q4_K_M")
    await user.command("app.downloads")
    await user.sees("25.0 MB/s")
    await user.sees("unfinished, 4.0 GB here")


async def mid_reply(user: Driver) -> None:
    await user.open_chat()
    await user.ask("Explain the Pythagorean theorem", rounds=8)
    await user.press("f8", "f8")
    await user.more_rounds(5)
    user.chat._show_numbers()


async def auto_length(user: Driver) -> None:
    await user.open_chat()
    await user.command("chat.auto")
    await user.ask("Explain the Pythagorean theorem", rounds=13)
    user.chat._show_numbers()


async def auto_length_folded(user: Driver) -> None:
    await auto_length(user)
    await user.press("f2")


async def compared(user: Driver) -> None:
    user.engine.plain_fork_at = 22
    await user.open_chat()
    await user.ask("Explain the Pythagorean theorem")
    await user.command("chat.compare")
    await user.idle()
    await user.sees("First difference")


async def context_moved_on(user: Driver) -> None:
    user.engine.reply = "A short reply, for a small screen."
    user.engine.turns_in_context = 2
    await user.open_chat()
    for question in ("How tall is the Eiffel Tower?", "And who built it?", "When?"):
        await user.ask(question)
    await user.sees("no longer in the context")


async def folded_panel_open(user: Driver) -> None:
    await compared(user)
    await user.press("f2")


async def bench_choosing(user: Driver) -> None:
    await user.open_chat()
    await user.command("chat.bench")
    await user.sees("replies of at most")


async def bench_done(user: Driver) -> None:
    await bench_choosing(user)
    await user.command("bench.measure")
    await user.sees("Fastest draft length")
    table = user.app.screen.query_one(DataTable)
    await user.until(lambda: not table._require_update_dimensions, "the widths of the columns")
    keep = user.app.screen.query_one("#keep-here")
    await user.until(lambda: user.inside(keep.region) and keep.has_focus, "the buttons")


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


@pytest.mark.parametrize(
    ("scene", "size"),
    [
        (auto_length, (80, 24)),
        (auto_length_folded, (80, 24)),
        (auto_length, (120, 36)),
        pytest.param(auto_length, (200, 50), marks=pytest.mark.slow),
    ],
)
def test_auto(picture: Callable[..., bool], scene: Scene, size: tuple[int, int]) -> None:
    assert picture(scene, size)


@pytest.mark.parametrize("scene", [bench_choosing, bench_done])
@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_bench(picture: Callable[..., bool], scene: Scene, size: tuple[int, int]) -> None:
    assert picture(scene, size)


@pytest.mark.parametrize("size", SIZES)
def test_comparison(picture: Callable[..., bool], size: tuple[int, int]) -> None:
    assert picture(compared, size)


@pytest.mark.parametrize("size", SIZES)
def test_running_download(picture: Callable[..., bool], size: tuple[int, int]) -> None:
    assert picture(downloading, size)


@pytest.mark.parametrize("scene", [context_moved_on, folded_panel_open, died, help_screen])
def test_at_80x24(picture: Callable[..., bool], scene: Scene) -> None:
    assert picture(scene, (80, 24))

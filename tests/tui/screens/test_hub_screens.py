"""The terminal half of the Hub on a scripted desk: what is shown, and what each key does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from textual.widgets import OptionList

from eaglechat.hub.downloads.client import RemoteFile
from eaglechat.hub.downloads.install import Plan
from eaglechat.hub.errors import GatedError
from eaglechat.hub.local.pairs import Pair
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.dialogs import Ask
from eaglechat.tui.screens.hub.downloads import DownloadsScreen
from eaglechat.tui.screens.hub.plan import PlanScreen
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.wire import protocol
from eaglechat.wire.protocol import Memory
from tests.tui.driving import Driver
from tests.tui.scripted_desk import MB, Halting, ScriptedDesk, entry, on_its_way

Drive = Callable[..., Driver]


@pytest.fixture
def desk() -> ScriptedDesk:
    return ScriptedDesk()


def a_plan(name: str, *, missing: int = 3000, gated: tuple[str, ...] = ()) -> Plan:
    pair = entry(name, converts=True)
    target = RemoteFile(pair.target.repo, f"{name}-Q4_K_M.gguf", "c" * 40, 2500 * MB, "a" * 64)
    draft = RemoteFile(f"lab/{name}_eagle3", "model.safetensors", "d" * 40, 500 * MB, "b" * 64)
    return Plan(pair, (target,), (draft,), gated, (), 3000 * MB, missing * MB)


async def test_each_pair_says_what_it_takes_and_why_it_cannot_run(
    drive: Drive, desk: ScriptedDesk
) -> None:
    # With an eighth more for the KV caches.
    desk.offer(entry("fits-the-gpu", 3556))
    desk.offer(entry("needs-ram", 10_667, converts=True))
    desk.offer(entry("too-large", 40_000))
    async with drive(size=(120, 40), desk=desk) as user:
        await user.sees_row("fits-the-gpu", "3.6 GB", "━━━━ ", "fits", "a draft")
        await user.sees_row("needs-ram", "10.7 GB", "━━━ ", "tight", "EAGLE-3", "to convert")
        await user.sees_row("too-large", "40.0 GB", "━━━━━━━━ ", "too large")


async def test_without_a_network_what_is_installed_works_and_the_rest_says_so(
    drive: Drive, desk: ScriptedDesk, models: Path
) -> None:
    pair = Pair("here", models / "target.gguf", models / "draft.gguf", "catalogue")
    desk.offer(entry("elsewhere"))
    seen, half = entry("seen"), entry("half-seen")
    target = msgspec.structs.replace(seen.target, size=2_500 * MB)
    draft = msgspec.structs.replace(seen.draft, size=400 * MB)
    desk.offer(msgspec.structs.replace(seen, target=target, draft=draft))
    desk.offer(msgspec.structs.replace(half, target=target))
    huge = msgspec.structs.replace(seen.target, size=10**15)
    desk.offer(msgspec.structs.replace(entry("huge"), target=huge))
    desk.offer(entry("here"), pair)
    async with drive(size=(80, 24), desk=desk) as user:
        await user.sees_row("elsewhere", "a draft")
        await user.sees_row("seen", "2.9 GB ", "fits")
        await user.sees_row("half-seen", "2.5 GB+", "fits")
        await user.sees_row("huge", "too large")
        await user.type("here")
        await user.sees("● here ")
        await user.press("enter", to=ChatScreen)
        load = user.engine.requests(protocol.Load)[-1]
        assert load.target == str(pair.target)


async def test_a_plan_is_shown_before_anything_is_downloaded(
    drive: Drive, desk: ScriptedDesk
) -> None:
    desk.offer(entry("small", 3000, converts=True))
    desk.plans["small"] = a_plan("small", missing=1900, gated=("org/small-GGUF",))
    async with drive(size=(80, 24), desk=desk) as user:
        await user.sees_row("small", "3.0 GB")
        await user.choose("entry:small", to=PlanScreen)
        await user.sees("small-Q4_K_M.gguf  2.5 GB")
        await user.sees("Download: 1.9 GB, 1.1 GB of 3.0 GB are already here")
        await user.sees("is then converted to GGUF")
        # At this height the rest is a page further down.
        await user.pilot.resize_terminal(80, 40)
        await user.sees("org/small-GGUF is gated")
        await user.sees("hf auth login")
        assert desk.started == []
        await user.press("escape", to=MenuScreen)
        await user.press("enter")
        await user.sees("Enter resumes")
        await user.press("enter", to=DownloadsScreen)
        assert desk.started == ["small"]


async def test_a_plan_that_fails_says_what_to_do_and_can_be_tried_again(
    drive: Drive, desk: ScriptedDesk
) -> None:
    desk.offer(entry("small", 3000))
    desk.plans["small"] = GatedError("org/small is gated: accept its licence, then log in.")
    async with drive(size=(80, 24), desk=desk) as user:
        await user.sees_row("small", "3.0 GB")
        await user.choose("entry:small")
        await user.sees("org/small is gated: accept its licence, then log in.")
        desk.plans["small"] = a_plan("small")
        await user.press("enter")
        await user.sees("small-Q4_K_M.gguf")


async def test_downloads_are_paused_resumed_and_cancelled_by_key_and_by_mouse(
    drive: Drive, desk: ScriptedDesk
) -> None:
    pair = entry("qwen3-4b", converts=True)
    desk.offer(pair)
    desk.moving = [on_its_way(pair)]
    desk.downloads = halting = Halting(desk)  # type: ignore[assignment]
    async with drive(size=(80, 24), desk=desk) as user:
        await user.sees_row("qwen3-4b", "2.9 GB", "downloading 49%")
        await user.choose("entry:qwen3-4b")
        await user.sees("25.0 MB/s    1:00 left")
        await user.sees("45%     1.1 GB of 2.5 GB")
        await user.press("space")
        await user.sees("paused · Space resumes")
        await user.click_text("pauses or resumes")
        await user.click_text("cancels")
        desk.moving = []
        await user.sees("No downloads in progress")
        assert halting.asked == [("pause", pair.name), ("resume", pair.name), ("cancel", pair.name)]


async def test_chatting_goes_on_while_a_pair_arrives_and_one_key_loads_it(
    drive: Drive, desk: ScriptedDesk, models: Path
) -> None:
    new = entry("qwen3-4b", converts=True)
    desk.offer(new)
    desk.moving = [moving] = [on_its_way(new)]
    async with drive(size=(80, 24), desk=desk) as user:
        await user.open_chat()
        await user.ask("hello", rounds=2)
        await user.command("app.downloads", to=DownloadsScreen)
        await user.more_rounds(3)
        desk.moving = [replace(moving, stage="converting", converted=(200, 999))]
        await user.sees("converting the draft")
        await user.press("escape", to=ChatScreen)

        pair = Pair("qwen3-4b", models / "target.gguf", None, "catalogue")
        desk.install("qwen3-4b", pair)
        notes = ("norm_output is read as EAGLE-3.1",)
        desk.moving = [replace(moving, stage="installed", pair=pair, notes=notes)]
        await user.sees("qwen3-4b is installed.")
        await user.command("app.downloads", to=DownloadsScreen)
        await user.sees("note: norm_output is read as EAGLE-3.1")
        await user.press("enter")
        await user.until(lambda: len(user.engine.requests(protocol.Load)) == 2, "the load")
        load = user.engine.requests(protocol.Load)[-1]
        assert (load.target, load.draft) == (str(pair.target), None)


async def test_a_failed_download_says_why_and_enter_tries_again(
    drive: Drive, desk: ScriptedDesk
) -> None:
    moving = on_its_way(entry("qwen3-4b"))
    sentence = "The disk is full: free some space and try again."
    files = (replace(moving.files[0], state="failed"), *moving.files[1:])
    desk.moving = [replace(moving, files=files, stage="failed", error=sentence)]
    desk.downloads = halting = Halting(desk)  # type: ignore[assignment]
    async with drive(size=(120, 40), desk=desk) as user:
        await user.sees(sentence)
        await user.command("app.downloads")
        await user.sees("failed · Enter tries again")
        await user.press("enter")
        assert halting.asked == [("resume", "qwen3-4b")]


async def test_a_pair_larger_than_the_memory_asks_before_it_is_loaded(
    drive: Drive, desk: ScriptedDesk, models: Path
) -> None:
    async with drive(size=(80, 24), desk=desk) as user:
        await user.sees("● smollm2-135m")
        await user.until(lambda: user.engine.hello, "the engine")
        small = Memory(ram=1, ram_available=1)
        assert user.engine.hello is not None
        user.engine.hello = protocol.Hello(
            protocol=protocol.PROTOCOL_VERSION,
            eaglechat="0",
            llama_cpp="",
            devices=(),
            memory=small,
        )
        await user.press("enter", to=Ask)
        await user.sees("more than this machine's 1 B")
        await user.press("enter", to=MenuScreen)
        assert not user.engine.requests(protocol.Load)
        assert user.app.screen.query_one(OptionList).highlighted == 1

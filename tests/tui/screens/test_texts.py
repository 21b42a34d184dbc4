"""What dialogs say at 80x24, as text. `pytest --snapshot-update` takes over what they say now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eaglechat.gguf.memory import MemoryNeed
from eaglechat.hub.downloads.install import Facts
from eaglechat.hub.local.model import LocalModel, ModelKind, Source
from eaglechat.tui.screens.hub.library import LibraryScreen
from eaglechat.tui.screens.hub.plan import PlanScreen
from tests.tui.driving import Driver
from tests.tui.screens.test_hub_screens import a_plan
from tests.tui.scripted_desk import MB, ScriptedDesk, entry

Drive = Callable[..., Driver]
SIZE = (80, 24)


async def shown(user: Driver) -> str:
    """What the screen shows once all of it stands where it stays."""
    texts = [""]

    def is_at_rest() -> bool:
        texts.append(user.text)
        return texts[-1] == texts[-2]

    await user.until(is_at_rest, "a screen at rest")
    return "\n".join(line.rstrip() for line in user.text.splitlines())


@pytest.mark.parametrize("fails", [False, True])
async def test_loading(drive: Drive, snapshot: Any, fails: bool) -> None:
    async with drive(size=SIZE) as user:
        user.engine.hold_load = True
        await user.sees("● smollm2-135m")
        await user.press("enter")
        await user.sees("Loading the target")
        await user.type("already asked")
        if fails:
            user.engine.load_error = ("load", "llama.cpp refused the model")
            user.engine.hold_load = False
            await user.sees("llama.cpp refused the model.")
        await user.sees("already asked")
        assert await shown(user) == snapshot


async def test_library(drive: Drive, snapshot: Any) -> None:
    desk = ScriptedDesk()
    for name, kind, problem in (
        ("qwen3-4b-Q4_K_M", ModelKind.TARGET, None),
        ("qwen3-4b-eagle3-Q8_0", ModelKind.DRAFT, None),
        ("half-a-model", ModelKind.BROKEN, "its second file of two is missing"),
    ):
        path = Path("models") / f"{name}.gguf"
        desk.on_disk.append(
            LocalModel(name, kind, Source.FOLDER, path, (path,), 2500 * MB, problem=problem)
        )
    async with drive(size=SIZE, desk=desk) as user:
        await user.sees("● smollm2-135m")
        await user.press("ctrl+g", "l")
        await user.on(LibraryScreen)
        await user.sees("3 models")
        assert await shown(user) == snapshot


async def test_plan(drive: Drive, snapshot: Any) -> None:
    desk = ScriptedDesk()
    need = MemoryNeed(5400 * MB, 500 * MB, 90 * MB, 8 * MB, 60 * MB, heads_kv=5 * MB)
    desk.headers = Facts(need, ("eagle3", "mtp"))
    desk.offer(entry("small", 3000, converts=True))
    desk.plans["small"] = a_plan("small", missing=1900)
    async with drive(size=SIZE, desk=desk) as user:
        await user.sees_row("small", "3.0 GB")
        await user.choose("entry:small", to=PlanScreen)
        await user.sees("GPU memory")
        await user.sees("Enter resumes")
        assert await shown(user) == snapshot

"""What drafts for a model, as the menu and the other lists of models say it before a load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import Input

from eaglechat.hub.local.library import scan
from eaglechat.hub.local.pairs import pair_of_files
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.hub.library import LibraryScreen
from eaglechat.wire import protocol
from tests.one_of_each import write_one_of_each
from tests.tui.driving import Driver
from tests.tui.scripted_desk import ScriptedDesk, entry

Drive = Callable[..., Driver]
SIZE = (120, 40)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_one_of_each(tmp_path / "own")


@pytest.fixture
def desk(folder: Path) -> ScriptedDesk:
    desk = ScriptedDesk()
    desk.on_disk = scan([folder])
    for target, draft in (
        ("plain", "dflash"), ("plain", "dspark"), ("plain", "dflash2"), ("other", "eagle3"),
        ("other", "eagle4"),
        ("heads", None), ("heads", "sidecar"), ("gemma4", "assistant"), ("unreadable", None),
    ):  # fmt: skip
        path = folder / f"{draft}.gguf" if draft else None
        pair = pair_of_files(folder / f"{target}.gguf", path)
        named = entry(f"{target}-{draft or 'alone'}")
        desk.offer(named, pair)
    return desk


async def test_a_row_of_the_menu_says_what_drafts_and_is_found_by_it(
    drive: Drive, desk: ScriptedDesk
) -> None:
    async with drive(size=SIZE, desk=desk) as user:
        await user.sees_row("plain-dflash", "1.9 MB", "fits", "DFlash ")
        await user.sees_row("plain-dspark", "DSpark ")
        await user.sees_row("plain-dflash2", "DFlash2 ")
        await user.sees_row("other-eagle3", "EAGLE-3 ")
        await user.sees_row("other-eagle4", "EAGLE-4 ")
        for name in ("heads-alone", "heads-sidecar", "gemma4-assistant"):
            await user.sees_row(name, "MTP heads ")
        await user.sees_row("unreadable-alone", "2 kB", "no draft ")
        # And can be searched for.
        await user.type("mtp heads")
        await user.until(lambda: "DSpark" not in user.text, "other pairs gone")
        for name in ("heads-alone", "heads-sidecar", "gemma4-assistant"):
            await user.sees(name)


async def test_a_pair_of_the_catalogue_says_what_drafts_before_its_download(
    drive: Drive,
) -> None:
    desk = ScriptedDesk()
    desk.offer(entry("told", 3000, drafter="dflash"))
    desk.offer(entry("not-known", 3000))
    desk.offer(entry("converted", converts=True))
    async with drive(size=SIZE, desk=desk) as user:
        await user.sees_row("told", "3.0 GB", "fits", "DFlash ")
        await user.sees_row("not-known", "3.0 GB", "fits", "a draft ")
        await user.sees_row("converted", "EAGLE-3 ")


async def test_the_library_says_what_a_file_drafts_with_and_what_it_can_be_paired_with(
    drive: Drive, desk: ScriptedDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Which is not asked.
    monkeypatch.setattr(ScriptedDesk, "hub", None)
    async with drive(size=SIZE, desk=desk) as user:
        await user.command("menu.library")
        await user.on(LibraryScreen)
        await user.sees("draft · DFlash2 · dflash F32")
        await user.sees("draft · MTP heads · gemma4-assistant F32")
        await user.sees("target · MTP heads · hy_v3 F32")
        await user.sees("target · DFlash, DFlash2, DSpark · llama F32")
        await user.type("hy_v3 target")
        await user.press("enter")
        await user.sees("What can make heads faster.")
        await user.sees("Its own MTP heads")
        await user.sees("on this machine: nothing more to download")


async def test_paths_of_a_target_and_its_draft_are_a_pair(
    drive: Drive, folder: Path, tmp_path: Path
) -> None:
    spaced = (tmp_path / "with spaces").resolve()
    spaced.mkdir()
    for name in ("plain", "dspark"):
        (spaced / f"{name}.gguf").write_bytes((folder / f"{name}.gguf").read_bytes())
    async with drive(size=SIZE) as user:
        words = user.app.screen.query_one(Input)
        words.value = str(folder / "head")
        await user.sees_row("heads.gguf", "1.0 MB", "fits", "MTP heads")
        # As terminals write what is dragged into them.
        for typed in (f"{spaced}/plain.gguf ", f"'{spaced}/plain.gguf' ", f"{spaced}/plain.gguf "):
            words.value = typed
            await user.sees_row("dspark.gguf", "fits", "DSpark")
            words.value = ""
        escaped = str(spaced).replace(" ", "\\ ")
        words.value = f"{escaped}/plain.gguf {escaped}/ds"
        await user.sees_row("dspark.gguf", "fits", "DSpark")
        await user.press("enter")
        await user.on(ChatScreen)
        load = user.engine.requests(protocol.Load)[-1]
        assert load.target == str(spaced / "plain.gguf")
        assert load.draft == str(spaced / "dspark.gguf")

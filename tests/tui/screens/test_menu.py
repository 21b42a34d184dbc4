"""What the menu says in a row, how it is moved in, and what it offers where it finds nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from textual.widgets import OptionList

from eaglechat.hub.local import pairs
from eaglechat.hub.local.library import scan
from eaglechat.hub.local.model import LocalModel
from eaglechat.hub.local.pair_library import PairLibrary
from eaglechat.hub.local.pairs import pair_of_files
from eaglechat.hub.local.speeds import Gain, setup_of
from eaglechat.settings.model import EngineSettings
from eaglechat.state_file import StateFile
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.wire import protocol
from tests.ggufs import write_target
from tests.one_of_each import write_one_of_each
from tests.tui.driving import WIDE, Driver
from tests.tui.scripted_desk import ScriptedDesk, entry
from tests.tui.textual_private import Gate

Drive = Callable[..., Driver]


@pytest.mark.parametrize("size", [(80, 24), (120, 36), WIDE])
async def test_a_row_says_what_was_measured_here_or_published(
    drive: Drive, tmp_path: Path, models: Path, size: tuple[int, int]
) -> None:
    library, engine = PairLibrary(tmp_path / "state"), EngineSettings()
    for name, speed_up in (("same", 1.04), ("slower", 0.8)):
        pair = pair_of_files(write_target(tmp_path / f"{name}.gguf"), None)
        library.remember(pair)
        library.speeds.note(setup_of(pair, engine), Gain(speed_up, 0.01, "auto", "question", 0.0))
    built_in = setup_of(pairs.builtin_pair(), engine)
    gains = [Gain(1.72, 0.05, 3, "bench", 1e6), Gain(9.0, 0.05, "auto", "bench", 0.0)]
    library.speeds.note(built_in, *gains)
    desk = ScriptedDesk()
    desk.offer(msgspec.structs.replace(entry("quick", 3000), speed_up=2.1))
    desk.offer(entry("unknown", 3000))
    async with drive(size=size, pairs=PairLibrary(tmp_path / "state"), desk=desk) as user:
        await user.sees_row("smollm2-135m", "fits", "EAGLE-3", "1.7x here")
        await user.sees_row("same", "fits", "no draft", "same as plain")
        await user.sees_row("slower", "0.8x here")
        await user.sees_row("quick", "3.0 GB", "fits", "2.1x published")
        await user.sees_row("unknown", "3.0 GB", "fits", "a draft ")
        columns = {
            user.text.splitlines()[y].index(word)
            for y, line in enumerate(user.text.splitlines())
            for word in ("1.7x here", "same as", "0.8x here", "2.1x", "speed ")
            if word in line
        }
        assert len(columns) == 1
        assert "x" not in user.row("unknown")
        # With which length, by what and when the highlighted row's figure was measured.
        await user.sees("1.7x ±0.1 as fast as plain with length 3 (bench, 1970-01-")
        await user.press("down")
        await user.sees("0.80x ±0.01 as fast as plain with auto (Compare, 1970-01-01)")


async def test_a_model_of_another_program_is_a_row_and_many_are_found_by_typing(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = ScriptedDesk()
    read, reads = StateFile.read, list[Path]()

    def counted(self: StateFile[object], otherwise: object) -> object:
        reads.append(self.path)
        return read(self, otherwise)

    monkeypatch.setattr(StateFile, "read", counted)
    found = {one.short_name: one for one in scan([write_one_of_each(tmp_path / "own")])}
    plain = found["plain"]
    many = [
        replace(plain, name=f"store/many-{n:04}.gguf", path=tmp_path / f"{n}.gguf")
        for n in range(2000)
    ]
    desk.on_disk = [found["heads"], found["unreadable"], found["eagle3"], *many]
    async with drive(size=(80, 24), desk=desk) as user:
        await user.sees_row("heads", "1.0 MB", "fits", "MTP heads")
        await user.sees_row("unreadable", "2 kB", "fits", "no draft")
        await user.sees_row("many-0003", "no draft")
        rows = user.app.screen.query_one(OptionList)
        await user.press("end")
        assert rows.option_count < 60
        assert "1,962 more; typing finds them" in user.text
        before = len(reads)
        assert before < 20
        await user.type("many-1999")
        await user.sees_row("many-1999", "fits", "no draft")
        assert len(reads) == before
        await user.press("enter")
        await user.on(ChatScreen)
        load = user.engine.requests(protocol.Load)[-1]
        assert (load.target, load.draft) == (str(many[-1].path), None)


async def test_the_menu_does_not_wait_for_the_headers_of_what_is_here(
    drive: Drive, tmp_path: Path
) -> None:
    models = scan([write_one_of_each(tmp_path / "own")])
    read = Gate()

    class SlowDesk(ScriptedDesk):
        def models(self, folders: Sequence[str | Path]) -> list[LocalModel]:
            read.wait()
            return models

    desk = SlowDesk()
    desk.offer(entry("small", 3000))
    async with drive(size=(80, 24), desk=desk) as user:
        try:
            await user.sees_row("smollm2-135m", "fits", "EAGLE-3")
            await user.sees_row("small", "3.0 GB", "fits")
            await user.sees("Looking for models on this machine…")
            assert "heads" not in user.text
        finally:
            read.set()
        await user.sees_row("heads", "fits", "MTP heads")
        assert "Looking" not in user.text


async def test_the_last_chats_are_resumed_from_the_menu(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.sees("New here? Enter starts smollm2-135m")
        assert "Continue" not in user.text
        for question in ("The oldest of them", "Why is the sky blue?", "One", "Two"):
            await user.open_chat()
            await user.ask(question)
            await user.press("ctrl+o")
            await user.on(MenuScreen)
        await user.sees_row("Two", "smollm2-135m", "just now")
        await user.until(lambda: "New here?" not in user.text, "no hint for the new")
        assert "The oldest" not in user.text
        await user.press("home", "down", "down", "enter")
        await user.on(ChatScreen)
        assert user.messages[0].content == "Why is the sky blue?"


async def test_keys_move_to_the_ends_of_the_list_past_its_headings(drive: Drive) -> None:
    desk = ScriptedDesk()
    for number in range(40):
        desk.offer(entry(f"pair-{number:02}", 3000))
    async with drive(size=(80, 24), desk=desk) as user:
        await user.sees_row("pair-00", "3.0 GB")
        rows = user.app.screen.query_one(OptionList)

        def chosen() -> str | None:
            return rows.highlighted_option and rows.highlighted_option.id

        first = chosen()
        await user.press("end")
        assert chosen() == "search"
        await user.press(*["pageup"] * 4)
        assert chosen() == first
        assert "Ready" in user.text
        await user.type("pair-")
        await user.press("end", "home")
        assert chosen() == "entry:pair-00"
        assert "Get" in user.text

"""Text that others wrote, everywhere in the app: it neither reaches the terminal as a control nor
is read as markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.widgets import Input, OptionList

from eaglechat.hub.errors import HubError
from eaglechat.hub.local.model import LocalModel, ModelKind, Source
from eaglechat.hub.local.pairs import pair_of_files
from eaglechat.settings.config_file import Problem
from eaglechat.settings.model import ServerSettings, Settings
from eaglechat.tui.commands.table import BY_ID
from eaglechat.tui.safe_lines import SafeLines
from eaglechat.tui.screens.chat.inside import InsideScreen
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.chat.seen import SeenScreen
from eaglechat.tui.screens.compare import CompareScreen
from eaglechat.tui.screens.dialogs import Ask
from eaglechat.tui.screens.help import HelpScreen
from eaglechat.tui.screens.hub.downloads import DownloadsScreen
from eaglechat.tui.screens.hub.library import LibraryScreen
from eaglechat.tui.screens.hub.plan import PlanScreen
from eaglechat.tui.screens.hub.search import SearchScreen
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.tui.screens.past.chats import ChatsScreen
from eaglechat.tui.screens.past.export import ExportScreen
from eaglechat.tui.screens.roles import RolesScreen
from eaglechat.tui.screens.settings import SettingsScreen
from tests.chat.headless import saved_chats, store_in
from tests.ggufs import write_draft, write_target
from tests.tui.driving import Driver
from tests.tui.scripted_desk import ScriptedDesk, entry, on_its_way
from tests.tui.textual_private import drawn_strips

NAME = "[/] [b]x[/y] \x1b]52;c;cHduZWQ=\x07\x1b[2J\x9b31m\u202e\u2066 漢字"
"""What a file can be called."""
HOSTILE = f"hostile {NAME} \x00\x08\r\n\t\x85\u2028\ud800 \x1b]0;pwned\x1b\\ end"
WRITTEN = HOSTILE.replace("\ud800", "")
"""What can be encoded."""
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture
def unsafe(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The controls in what widgets draw, which the app's filter has to remove; so the test knows
    that something hostile was drawn at all."""
    drawn: set[str] = set()
    apply = SafeLines.apply

    def note(self, segments, background):  # type: ignore[no-untyped-def]
        drawn.update(*(CONTROL.findall(segment.text) for segment in segments))
        return apply(self, segments, background)

    monkeypatch.setattr(SafeLines, "apply", note)
    return drawn


@pytest.fixture
def desk(tmp_path: Path) -> ScriptedDesk:
    desk = ScriptedDesk()
    evil = entry("evil", licence=HOSTILE)
    desk.offer(evil)
    desk.offer(entry("away"))
    desk.plans["evil"] = HubError(HOSTILE)
    failed = replace(on_its_way(entry("away")), name=NAME, stage="failed", error=HOSTILE)
    desk.moving = [failed, on_its_way(evil)]
    broken = tmp_path / "broken.gguf"
    desk.on_disk = [
        LocalModel(
            NAME, ModelKind.BROKEN, Source.FOLDER, broken, (broken,), 1, NAME, problem=HOSTILE
        )
    ]
    return desk


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a ❤️b", "a ❤ b"),
        ("👍🏽", "👍"),
        ("🏳️‍🌈 1️⃣|", "🏳  1 |"),
        ("👩🏽‍💻", "👩"),
        *((same, same) for same in ("👩‍👩‍👧", "🇩🇪", "漢字", "é", "plain")),
    ],
)
def test_within_tmux_no_emoji_is_drawn_that_it_measures_otherwise(
    monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    drawn = {}
    for terminal in ("xterm-256color", "tmux-256color"):
        monkeypatch.setenv("TERM", terminal)
        monkeypatch.delenv("TMUX", raising=False)
        [segment] = SafeLines().apply([Segment(text)], Color(0, 0, 0))
        drawn[terminal] = segment.text
    assert drawn == {"xterm-256color": text, "tmux-256color": shown}
    assert cell_len(shown) == cell_len(text)


async def check(user: Driver) -> None:
    await user.pilot.pause()
    for strip in drawn_strips(user.app.screen):
        assert not CONTROL.search(strip.text), strip.text


async def test_hostile_text_is_drawn_everywhere_and_reaches_the_terminal_nowhere(  # noqa: PLR0915, PLR0917
    drive: Callable[..., Driver],
    desk: ScriptedDesk,
    tmp_path: Path,
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    unsafe: set[str],
) -> None:
    folder = tmp_path / "[b] [conf]"
    (folder / "roles").mkdir(parents=True)
    description = msgspec.json.encode(WRITTEN).decode()
    (folder / "roles" / "evil.toml").write_text(
        f'description = {description}\nsystem = "be [/]"\n', "utf-8"
    )
    monkeypatch.chdir(folder)
    name = NAME.replace("/", "|")
    (folder / f"{name}.txt").write_text("a file")
    target = write_target(folder / f"{name}-target.gguf")
    pair = pair_of_files(target, write_draft(folder / f"{name}-draft.gguf"))
    pair = replace(pair, name=NAME)
    (tmp_path / "chats").mkdir()
    (tmp_path / "chats" / f"{name}.jsonl").write_bytes(b"no chat")
    written: list[str] = []
    server = ServerSettings(name=NAME, url=f"http://{NAME}")
    user = drive(
        size=(120, 40),
        desk=desk,
        start=pair,
        settings=Settings(server=(server,)),
        config_file=folder / "config.toml",
        problems=[Problem(folder, NAME, HOSTILE)],
    )
    user.engine.engine_name = NAME
    user.engine.reply = WRITTEN + "**Note: " * 300
    user.engine.wrong_guesses = (WRITTEN,)
    user.engine.load_error = ("load", HOSTILE)
    user.app.services.away.write = written.append
    async with user:
        await user.sees("end")
        named = "the file that is no chat"
        await user.until(lambda: any("stay there" in said for said in user.notices), named)
        await check(user)
        user.engine.load_error = None
        await user.press("enter")
        await user.on(ChatScreen)
        await check(user)

        # The chat, with what is written in it.
        await user.type("@")
        await user.sees(".txt")
        await check(user)
        user.prompt.load_text(HOSTILE)
        await check(user)
        user.engine.budget = None
        await user.press("enter")
        await user.idle()
        for _ in range(3):
            await user.command("chat.view")
            await check(user)
        for id, screen in (
            ("chat.inspect", InsideScreen), ("chat.prompt", SeenScreen),
            ("chat.context", Ask), ("chat.export", ExportScreen),
            ("chat.role", RolesScreen), ("chat.compare", CompareScreen),
        ):  # fmt: skip
            await user.chat.run_action(BY_ID[id].call())
            await user.on(screen)
            await check(user)
            if screen is CompareScreen:
                await user.press("escape")
                await user.sees("Enter keeps")
            await user.press("escape", to=ChatScreen)
        user.app.services.chats.rename(user.chat.session.chat.name, HOSTILE)
        user.engine.chat_error = ("x", HOSTILE)
        user.prompt.load_text(HOSTILE)
        await user.press("enter")
        await user.sees("x Hostile")
        await check(user)
        user.engine.die(HOSTILE)
        await user.sees("engine stopped")
        await check(user)

        # The menu, and what it opens.
        user.engine.chat_error = None
        user.app.call_later(user.app.open_menu)
        await user.on(MenuScreen)
        await user.sees("hostile")
        await check(user)
        rows = user.app.screen.query_one("#pairs", OptionList)
        for place in range(rows.option_count):
            rows.highlighted = place
            await check(user)
        for id, kind in (
            ("menu.library", LibraryScreen), ("app.downloads", DownloadsScreen),
            ("menu.search", SearchScreen),
            ("app.settings", SettingsScreen), ("chats.open", ChatsScreen),
            ("app.help", HelpScreen),
        ):  # fmt: skip
            await user.command(id)
            await user.on(kind)
            await check(user)
            if kind is ChatsScreen:
                user.app.screen.query_one(Input).value = "hostile"
                await user.sees("hostile")
                await check(user)
                user.app.screen.query_one(Input).value = ""
            await user.press("escape", to=MenuScreen)
        user.app.push_screen(PlanScreen(user.app.services, entry("evil", licence=HOSTILE)))
        await user.on(PlanScreen)
        await user.sees("end")
        await check(user)
        await user.press("escape", to=MenuScreen)
        user.app.push_screen(Ask(HOSTILE, HOSTILE, "does it"))
        await user.on(Ask)
        await check(user)
    (chat,) = saved_chats(tmp_path)
    store_in(tmp_path).rename(chat.name, WRITTEN)
    assert unsafe >= {"\x1b", "\x9b", "\u202e", "\x00", "\ud800"}
    titles = [one for one in written if one.startswith("\x1b]2;")]
    assert titles
    assert not any(CONTROL.search(one[4:-1]) for one in titles)

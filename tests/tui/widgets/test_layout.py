"""The screens in terminals of different sizes: nothing is cut off, nothing crashes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import OptionList

from eaglechat.hub.errors import HubError
from eaglechat.hub.local.pair_library import PairLibrary
from eaglechat.hub.local.pairs import pair_of_files
from eaglechat.settings.model import InterfaceSettings, Settings
from eaglechat.tui.screens.base import TooSmall
from eaglechat.tui.screens.chat.screen import PANEL_FROM, ChatScreen
from eaglechat.tui.screens.help import HelpScreen
from eaglechat.tui.screens.hub.downloads import DownloadsScreen
from eaglechat.tui.screens.hub.library import LibraryScreen
from eaglechat.tui.screens.hub.plan import PlanScreen
from eaglechat.tui.screens.hub.search import SearchScreen
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.tui.screens.more import MoreScreen
from eaglechat.tui.screens.past.chats import ChatsScreen
from eaglechat.tui.screens.settings import SettingsScreen
from eaglechat.tui.widgets.panel.knob import Knob
from eaglechat.tui.widgets.panel.measures import Measures, StatusLine
from eaglechat.tui.widgets.panel.panel import SpeculationPanel
from eaglechat.wire.gain import MeasuredGain
from eaglechat.wire.protocol import AUTO
from eaglechat.words import numbers
from tests.ggufs import write_target
from tests.tui.driving import WIDE, Driver
from tests.tui.scripted_desk import ScriptedDesk, entry

Drive = Callable[..., Driver]

DIALOGS = (
    ("app.leader", MoreScreen),
    ("app.help", HelpScreen),
    ("app.settings", SettingsScreen),
    ("menu.search", SearchScreen),
    ("app.downloads", DownloadsScreen),
    ("menu.library", LibraryScreen),
)
"""Commands of the menu, and what each opens."""


async def test_the_panel_stands_whole_beside_the_chat_where_there_is_room(drive: Drive) -> None:
    async with drive(size=PANEL_FROM["beside"], n_draft_max=AUTO) as user:
        await user.open_chat()
        await user.ask("hello")
        panel = user.chat.query_one(SpeculationPanel)
        assert user.inside(panel.region)
        assert panel.max_scroll_y == 0
        assert not user.chat.query_one(StatusLine).display
        await user.press("f2")
        assert not panel.display
        assert user.chat.query_one(StatusLine).display


async def test_a_chat_that_opens_has_its_panel_from_the_first_frame(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChatScreen, "on_resize", lambda _screen, _event: None)
    async with drive(size=PANEL_FROM["beside"]) as user:
        await user.open_chat()
        assert user.chat.query_one(SpeculationPanel).display


@pytest.mark.parametrize("size", [PANEL_FROM["below"], (120, 36), WIDE])
async def test_the_panel_can_stand_below_the_chat(drive: Drive, size: tuple[int, int]) -> None:
    below = Settings(interface=InterfaceSettings(panel="below"))
    async with drive(size=size, settings=below) as user:
        await user.open_chat()
        await user.ask("hello")
        panel, status = user.chat.query_one(SpeculationPanel), user.chat.query_one(StatusLine)

        def is_below() -> bool:
            under = panel.region.y >= user.prompt.region.bottom
            return under and panel.region.width == user.app.size.width == size[0]

        await user.until(is_below, "the panel below the prompt")
        assert not status.display
        assert user.chat.transcript.size.height >= 10
        # It is as high as it has rows: nothing of it is cut off, and nothing scrolls.
        shown = [one for one in panel.query(Knob) if one.display]
        assert all(user.inside(one.region) for one in (*shown, panel.query_one(Measures)))
        assert panel.max_scroll_y == 0
        await user.press("f2")
        await user.until(lambda: status.display and not panel.display, "the status line")
        await user.press("f2")
        await user.until(is_below, "the panel again")
        user.app.services.settings.change("interface", "panel", "beside")
        beside = size >= PANEL_FROM["beside"]
        width = 42 if beside else 0
        await user.until(lambda: panel.region.width == width, "where it is by itself")
        assert panel.display == beside
        user.app.services.settings.change("interface", "panel", "below")
        await user.until(is_below, "the panel below again")
        await user.pilot.resize_terminal(size[0], 33)
        await user.until(lambda: status.display and not panel.display, "too low for it")


async def test_the_panel_folds_into_a_status_line_at_80x24(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.ask("hello")
        assert not user.chat.query_one(SpeculationPanel).display
        status = user.chat.query_one(StatusLine)
        assert user.inside(status.region)
        line = status.render().plain
        assert len(line) <= 78
        for part in ("plain not measured", "137 tok/s", "kept 75%", "length 3"):
            assert part in line
        await user.sees("ctx 80 / 8,192")
        assert user.inside(user.prompt.region)
        # It opens over the transcript, with every control in sight.
        panel = user.chat.query_one(SpeculationPanel)
        await user.press("f2")
        await user.sees("CONTROL")
        for control in panel.query(Knob):
            assert not control.display or user.inside(control.region)
        assert not panel.region.overlaps(status.region)
        assert user.inside(user.prompt.region)
        await user.type("still typing")
        assert user.prompt.text == "still typing"
        await user.press("tab", "right")
        assert user.chat.session.controls.n_draft_max == 4
        await user.press("escape")
        assert not panel.display
        assert user.prompt.has_focus
        await user.press("f2")
        assert panel.display
        await user.press("f2")
        assert not panel.display


async def test_the_folded_panel_hides_no_line_of_the_prompt(drive: Drive) -> None:
    async with drive(size=(60, 15)) as user:
        await user.open_chat()
        await user.press("f2")
        user.prompt.load_text("\n".join(f"line {n}" for n in range(12)))
        await user.sees("SPEED")
        await user.sees("line 1")
        panel = user.chat.query_one(SpeculationPanel)
        assert panel.region.height > user.prompt.region.height
        assert not panel.region.overlaps(user.prompt.region)
        assert user.inside(user.prompt.region)


async def test_the_status_line_leaves_out_what_does_not_fit_and_keeps_the_speed(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with drive(size=(44, 24)) as user:
        await user.open_chat()
        await user.ask("hello")
        status = user.chat.query_one(StatusLine)
        parts = ["plain not measured", "137 tok/s", "kept 75%", "length 3", "F7- F8+"]
        for width, shown, rounds in ((44, 3, 0), (60, 4, 0), (71, 5, 4), (76, 5, 9), (98, 5, 12)):
            await user.pilot.resize_terminal(width, 24)
            await user.until(
                lambda width=width: status.content_size.width == width - 2, "the width"
            )
            line = status.render().plain
            assert len(line) <= width - 2
            assert line.split("   ")[:shown] == parts[:shown]
            assert sum(cell in "·◦▁▂▃▄▅▆▇█" for cell in line) == rounds
        headline = numbers.headline(user.chat.session)
        told = replace(headline, state="told", gain=MeasuredGain(1.4, 0.1), of="")
        monkeypatch.setattr(numbers, "headline", lambda _: told)
        assert status.render().plain.startswith("1.4x plain   137 tok/s   kept 75%   ")
        await user.press("f3")
        await user.until(lambda: "off   137" in status.render().plain, "speculation off")
        assert "you switched it off" in status.render().plain


async def test_a_terminal_of_20x5_says_so_and_recovers(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.ask("hello", rounds=2)
        await user.type("kept")
        await user.pilot.resize_terminal(20, 5)
        await user.sees("too small")
        await user.more_rounds(3)
        await user.pilot.resize_terminal(80, 24)
        await user.until(lambda: "too small" not in user.text, "the chat again")
        assert user.prompt.text == "kept"
        await user.type("!")
        assert user.prompt.text == "kept!"


async def test_every_screen_opens_in_a_terminal_of_20x5(drive: Drive) -> None:
    async with drive(size=(20, 5)) as user:
        user.engine.hold_load = True
        for id, kind in (*DIALOGS, ("chats.open", ChatsScreen)):
            await user.on(MenuScreen)
            await user.sees("too small")
            await user.command(id)
            await user.on(kind)
            await user.sees("too small")
            assert user.app.screen.query_one(TooSmall).display
            await user.press("escape")
        await user.on(MenuScreen)
        await user.press("enter")
        await user.until(lambda: type(user.app.screen) is ChatScreen, "the chat")
        await user.sees("too small")


WHOLE = 30 + 2 + 2
"""Rows of the menu with thirty pairs: with two headings, and two ways to other screens."""


async def test_the_menu_with_thirty_pairs_by_keyboard_and_mouse_at_80x24(
    drive: Drive, tmp_path: Path
) -> None:
    library = PairLibrary(tmp_path / "many")
    library.remember(pair_of_files(write_target(tmp_path / "mine.gguf"), None))
    desk = ScriptedDesk()
    for number in range(28):
        desk.offer(entry(f"pair-{number:02}", 1000 + number))
    async with drive(size=(80, 24), pairs=library, desk=desk) as user:
        options = user.app.screen.query_one(OptionList)
        await user.until(lambda: options.option_count == WHOLE, "the whole list")
        await user.press("end", "up")
        await user.sees("pair-27")
        assert options.highlighted_option is not None
        assert options.highlighted_option.id == "entry:pair-27"
        await user.press("down")
        assert options.highlighted_option.id == "search"

        await user.type("07")
        await user.sees_row("pair-07", "1.0 GB")
        assert options.option_count == 3
        await user.press("escape", "home")
        await user.until(lambda: options.option_count == WHOLE, "the whole list again")
        desk.plans["pair-00"] = HubError("org/pair-00-GGUF is not on the Hub.")
        await user.click_text("pair-00")
        await user.on(PlanScreen)
        await user.sees("org/pair-00-GGUF is not on the Hub.")
        await user.click_text("Esc back")
        await user.on(MenuScreen)
        await user.click_text("smollm2-135m")
        await user.on(ChatScreen)


KEY = re.compile("Enter|Esc")


def border_of(user: Driver) -> str:
    """What stands in the lower border of the dialog on top."""
    dialog = user.app.screen.query_one(".dialog").region
    return user.text.splitlines()[dialog.bottom - 1][dialog.x : dialog.right]


@pytest.mark.parametrize("size", [(44, 24), (80, 24)])
async def test_dialogs_fit_with_whole_keys_in_their_borders(
    drive: Drive, size: tuple[int, int]
) -> None:
    async with drive(size=size) as user:
        user.engine.hold_load = True
        for id, kind in DIALOGS:
            await user.on(MenuScreen)
            await user.command(id)
            await user.on(kind)
            await user.until(lambda: KEY.search(border_of(user)), "what can be done")
            assert "…" not in border_of(user)
            assert user.inside(user.app.screen.query_one(".dialog").region)
            await user.press("escape")
        await user.on(MenuScreen)
        await user.sees("● smollm2-135m")
        user.engine.load_error = ("load", "llama.cpp refused the model")
        user.engine.hold_load = False
        await user.press("enter")
        await user.sees("llama.cpp refused the model")
        await user.until(lambda: "tries again" in border_of(user), "what can be done")
        assert ("Ctrl+G B without draft" in border_of(user)) == (size[0] == 80)
        assert border_of(user).endswith("Esc back ─╯")
        assert user.inside(user.app.screen.query_one(".dialog").region)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_a_notice_covers_nothing(drive: Drive, size: tuple[int, int]) -> None:
    async with drive(size=size) as user:
        await user.open_chat()
        user.app.notify("one " * 60)
        user.app.notify("two")
        await user.until(
            lambda: [toast.region.area > 0 for toast in user.chat.query("Toast")] == [True, True],
            "the notices",
        )
        for toast in user.chat.query("Toast"):
            assert user.inside(toast.region)
            for other in user.chat.query("#transcript, #panel, #prompt, #status, KeyLine"):
                assert not other.display or not toast.region.overlaps(other.region), other


async def test_a_dialog_does_not_repeat_the_notice_behind_it(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        user.app.notify("said before")
        await user.sees("said before")
        await user.open_settings()
        user.app.notify("said now")
        await user.sees("said now")
        assert user.text.count("said before") == 1
        dialog = user.app.screen.query_one(".dialog").region
        assert user.inside(dialog)
        for notice in user.app.screen.query("Toast"):
            assert not notice.region.overlaps(dialog)
        await user.press("escape")
        await user.sees("said before")
        await user.sees("said now")

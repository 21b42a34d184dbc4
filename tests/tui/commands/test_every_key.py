"""Each key that is advertised on a screen is pressed there, and does something or says why not."""

from __future__ import annotations

import itertools
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input, OptionList, TextArea

from eaglechat.hub.errors import HubError
from eaglechat.hub.local.model import LocalModel, ModelKind, Source
from eaglechat.tui.commands.keys import active_commands, name_of
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
from eaglechat.tui.screens.more import SEARCH_KEY, MoreScreen
from eaglechat.tui.screens.past.chats import ChatsScreen
from eaglechat.tui.screens.past.export import ExportScreen
from eaglechat.tui.screens.settings import SettingsScreen
from eaglechat.tui.widgets.panel.knob import Knob
from eaglechat.tui.widgets.transcript.transcript import Transcript
from tests.tui.driving import Driver, pressed
from tests.tui.scripted_desk import Halting, ScriptedDesk, entry, on_its_way
from tests.tui.textual_private import drawn_strips

Drive = Callable[..., Driver]
Way = Callable[[Driver], Awaitable[None]]


async def highlight(user: Driver, begins: str) -> None:
    """The row of the menu whose id begins so."""
    rows = user.app.screen.query_one(OptionList)

    def places() -> list[int]:
        return [at for at, one in enumerate(rows.options) if (one.id or "").startswith(begins)]

    await user.until(places, f"a row {begins}")
    rows.highlighted = places()[0]


async def to_menu(user: Driver) -> None:
    user.app.call_later(user.app.open_menu)
    await user.on(MenuScreen)
    menu = user.app.screen
    menu.query_one(Input).value = ""
    await user.sees("● smollm2-135m")
    await highlight(user, "library")


async def to_filtered_menu(user: Driver) -> None:
    await to_menu(user)
    await user.type("s")
    await highlight(user, "library")


async def to_chat(user: Driver) -> None:
    """A chat that has been read up to its middle, with a reply to copy and compare."""
    await to_menu(user)
    await highlight(user, "pair:")
    await user.press("enter")
    await user.on(ChatScreen)
    user.engine.reply = "In short: yes."
    await user.ask("A question of many lines.\n" * 40)
    user.prompt.load_text("one\ntwo")
    await read_up(user)


async def to_reply(user: Driver) -> None:
    await to_chat(user)
    user.engine.budget = 0
    user.prompt.load_text("go")
    await user.press("enter")
    await user.until(lambda: user.chat.session.running is not None, "a reply")
    await user.sees("reading the prompt 100%")
    await read_up(user)


async def read_up(user: Driver) -> None:
    transcript = user.chat.query_one("#transcript")
    await user.until(lambda: transcript.max_scroll_y > 20, "a chat that can be scrolled")
    # At once: later it might undo what the next key does.
    transcript.scroll_to(y=20, animate=False, immediate=True)
    await user.until(lambda: transcript.scroll_y == 20, "its middle")


async def to_dead_chat(user: Driver) -> None:
    await to_reply(user)
    user.engine.die("the end")
    await user.sees("engine stopped")


async def to_knob(user: Driver) -> None:
    await to_chat(user)
    user.chat.remove_class("-panel-open")
    await user.command("chat.pane")
    user.chat.action_control("temperature", 0.5)
    user.app.screen.set_focus(user.chat.query_one("#temperature", Knob))


async def to_comparison(user: Driver) -> None:
    await to_chat(user)
    await user.command("chat.compare")
    await user.on(CompareScreen)
    await user.sees("as fast as plain")


async def to_running_comparison(user: Driver) -> None:
    await to_chat(user)
    user.engine.budget = 0
    await user.command("chat.compare")
    await user.on(CompareScreen)


async def to_seen(user: Driver) -> None:
    await to_chat(user)
    user.prompt.load_text("A question of many lines.\n" * 40)
    await user.command("chat.prompt")
    await user.on(SeenScreen)


async def to_past_chats(user: Driver) -> None:
    await to_chat(user)
    await user.command("chats.open")
    await user.on(ChatsScreen)
    chats = user.app.screen.query_one(OptionList)
    await user.until(lambda: chats.option_count, "the chats")


async def to_loading(user: Driver) -> None:
    await to_menu(user)
    user.engine.hold_load = True
    await highlight(user, "pair:")
    await user.press("enter")
    await user.sees("Loading the target")


async def to_plan(user: Driver) -> None:
    await to_menu(user)
    user.app.push_screen(PlanScreen(user.app.services, entry("qwen3-4b")))
    await user.on(PlanScreen)


async def to_confirm(user: Driver) -> None:
    await to_menu(user)
    user.app.push_screen(Ask("Sure?", "It may not work.", "does it"))
    await user.on(Ask)


async def to_message(user: Driver) -> None:
    await to_menu(user)
    user.app.push_screen(Ask("So it is", "Nothing to be done."))
    await user.on(Ask)


async def to_inside(user: Driver) -> None:
    """In the middle of a reply of many rounds."""
    await to_menu(user)
    await highlight(user, "pair:")
    await user.press("enter")
    await user.on(ChatScreen)
    await user.ask("How?")
    await user.command("chat.inspect")
    await user.on(InsideScreen)
    await user.press("left", "left")


async def to_find(user: Driver) -> None:
    await to_chat(user)
    await user.command("chat.find")
    await user.type("short")
    await user.sees("1 of")
    await read_up(user)


async def to_ask(user: Driver) -> None:
    await to_menu(user)
    user.app.push_screen(Ask("Rename", "Its title.", written="old"))
    await user.on(Ask)


async def to_export(user: Driver) -> None:
    await to_chat(user)
    user.app.push_screen(ExportScreen(user.chat.session.recorder.reader()))
    await user.on(ExportScreen)


def by(id: str, screen: type[Any]) -> Way:
    """From the menu by a command."""

    async def go(user: Driver) -> None:
        await to_menu(user)
        await user.command(id)
        await user.on(screen)
        if screen is LibraryScreen:
            await user.sees("3 models")
            user.app.screen.query_one(OptionList).highlighted = 1

    return go


NAMED = re.compile(r"Ctrl\+\S+(?: [A-Z?,+-](?=[ ,]))?|\bF\d+|Esc|Space|Enter|Tab")

PLACES: dict[str, Way] = {
    "menu": to_menu,
    "filtered menu": to_filtered_menu,
    "chat": to_chat,
    "reply": to_reply,
    "dead chat": to_dead_chat,
    "knob": to_knob,
    "comparison": to_comparison,
    "running comparison": to_running_comparison,
    "seen": to_seen,
    "past chats": to_past_chats,
    "loading": to_loading,
    "plan": to_plan,
    "confirm": to_confirm,
    "inside": to_inside,
    "find": to_find,
    "ask": to_ask,
    "export": to_export,
    "message": to_message,
    "more": by("app.leader", MoreScreen),
    "help": by("app.help", HelpScreen),
    "settings": by("app.settings", SettingsScreen),
    "downloads": by("app.downloads", DownloadsScreen),
    "search": by("menu.search", SearchScreen),
    "library": by("menu.library", LibraryScreen),
}


FIRST = ("menu", "chat", "inside", "ask", "settings")
"""Of each kind of place one; the slow tests have them all."""


@pytest.fixture
def desk(models: Path) -> ScriptedDesk:
    desk = ScriptedDesk()
    desk.offer(entry("qwen3-4b"))
    desk.moving = [on_its_way(entry("qwen3-4b"))]
    desk.downloads = Halting(desk)  # type: ignore[assignment]
    desk.plans["qwen3-4b"] = HubError("The Hub is not there.")
    desk.on_disk = [
        LocalModel(file.name, ModelKind.BROKEN, Source.FOLDER, file, (file,), 1)
        for file in (models / "target.gguf", models / "draft.gguf", models / "other.gguf")
    ]
    return desk


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
async def test_a_key_that_is_shown_does_something_or_says_why_not(
    drive: Drive, desk: ScriptedDesk, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Some keys write a file where the app runs.
    monkeypatch.chdir(tmp_path)
    async with drive(size=(80, 24), desk=desk) as user:
        exits: list[str] = []
        user.app.exit = lambda **_: exits.append("exit")  # type: ignore[assignment]
        await PLACES[place](user)
        advertised = advertised_keys(user)
        assert advertised
        start, chat = look(user), chat_of(user)
        for command, keys in advertised.items():
            for key in keys:
                await at_rest(user)
                if not back(user, start) and not await tidied(user, chat):
                    user.engine.budget, user.engine.hold_load = None, False
                    await PLACES[place](user)
                    chat = chat_of(user)
                start = await at_rest(user)
                before = start, len(exits)
                await user.press(*pressed(key))
                await user.until(
                    lambda before=before: (look(user), len(exits)) != before,
                    f"anything, in {place}, on {name_of(key)} of {command}",
                )


@pytest.mark.parametrize("place", FIRST)
async def test_a_dialog_names_keys_it_has_and_the_help_lists_each_command_once(
    drive: Drive, desk: ScriptedDesk, place: str
) -> None:
    async with drive(size=(80, 24), desk=desk) as user:
        await PLACES[place](user)
        keys = itertools.chain(*advertised_keys(user).values())
        names = {"Enter", "Tab", name_of(SEARCH_KEY), *map(name_of, keys)}
        boxes = [box for box in user.app.screen.query(".dialog") if box.region]
        said = " ".join(str(box.border_subtitle) for box in boxes)
        assert set(NAMED.findall(said)) <= names
        meant = [one.command.help for one in active_commands(user.app.screen)]
        on_help = place == "help"
        await user.press("f1")
        if on_help:
            await user.on(MenuScreen)
            return
        await user.on(HelpScreen)
        listed = [entry.sentence for entry in user.app.screen.things if entry is not None]
        assert sorted(listed[: len(meant)]) == sorted(meant)
        assert len(listed) == len(set(listed))
        await user.press("escape")
        await user.until(lambda: not isinstance(user.app.screen, HelpScreen), "the screen again")


def advertised_keys(user: Driver) -> dict[str, list[str]]:
    """By the commands that hold now, their keys that a keyboard has."""
    return {
        active.command.id: [key for key in active.keys if "\\" not in key]
        for active in active_commands(user.app.screen)
        if active.enabled
    }


def back(user: Driver, start: tuple[object, ...]) -> bool:
    """Close what was opened; whether all is as it was."""
    shown = user.app.screen_stack
    for screen in reversed(shown[1:]):
        if id(screen) == start[0] or not any(id(one) == start[0] for one in shown):
            break
        user.app.pop_screen()
    user.app.clear_notifications()
    return look(user) == start


def chat_of(user: Driver) -> object:
    """What a chat is but for its views and controls; None on another screen."""
    screen = user.app.screen
    if not isinstance(screen, ChatScreen) or screen.load.is_open:
        return None
    kinds = [one.entry.kind for one in screen.transcript.rows.drawn]
    return id(screen), kinds, screen.session.running is None, type(screen.focused)


async def at_rest(user: Driver) -> tuple[object, ...]:
    """The look once all that the key before has begun is on the screen."""
    await user.until(lambda: not user.engine.is_rendering, "the prompt that was asked for")
    looks: list[tuple[object, ...]] = [()]

    def unchanged() -> bool:
        looks.append(look(user))
        return looks[-1] == looks[-2]

    await user.until(unchanged, "a screen at rest")
    return looks[-1]


async def tidied(user: Driver, chat: object) -> bool:
    """Whether the chat is as it was but for its views and controls, which may stay turned."""
    if chat is None or chat_of(user) != chat:
        return False
    user.prompt.load_text("one\ntwo")
    await read_up(user)
    return True


def look(user: Driver) -> tuple[object, ...]:
    """All that a user could notice."""
    app, screen = user.app, user.app.screen
    for field in screen.query("Input, TextArea"):
        field.cursor_blink = False
    return (
        id(screen),
        # Simplified: a strip may be drawn again in other pieces that look the same.
        [list(strip.simplify()) for strip in drawn_strips(screen)],
        screen.focused,
        [options.highlighted for options in screen.query(OptionList)],
        [field.text for field in screen.query(TextArea)],
        [one.view for one in screen.query(Transcript)],
        user.notices,
        app.clipboard,
        len(user.engine.sent),
    )

"""Drives the app as a user would: keys in, what is on the screen out."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import Any

import pytest
from textual.geometry import Region
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import OptionList

from eaglechat.tui.app import EagleApp
from eaglechat.tui.commands.keys import keys_of
from eaglechat.tui.commands.table import LEADER
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.tui.screens.settings import SettingsScreen
from eaglechat.tui.widgets.prompt.prompt import Prompt
from eaglechat.wire.protocol import Message
from tests.tui.scripted import ScriptedEngine
from tests.tui.textual_private import drawn_strips, notices
from tests.waiting import until_async

WIDE = pytest.param((200, 50), marks=pytest.mark.slow)
"""A size that the slow tests have too."""


def pressed(key: str) -> list[str]:
    """The keys to press for a key of a command, the leader's first if it needs that."""
    leader, _, second = key.partition(" ")
    return [keys_of("app.leader")[0], second] if leader == LEADER else [key]


class Driver:
    """The running app. `until` waits for a condition, never for a time."""

    pilot: Pilot[None]

    def __init__(self, app: EagleApp, engine: ScriptedEngine, size: tuple[int, int]) -> None:
        self.app, self.engine = app, engine
        self._size = size
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Driver:
        self.pilot = await self._stack.enter_async_context(
            self.app.run_test(size=self._size, notifications=True)
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def until(self, condition: Callable[[], object], what: str) -> None:
        await until_async(condition, lambda: f"{what}\n{self.text}", lambda: self.pilot.pause(0.01))

    async def press(self, *keys: str, to: type[Screen[Any]] | None = None) -> None:
        """Press keys; wait for the screen they lead `to`."""
        await self.pilot.press(*keys)
        if to is not None:
            await self.on(to)

    async def command(self, *ids: str, to: type[Screen[Any]] | None = None) -> None:
        """Press the keys of commands."""
        for id in ids:
            await self.press(*pressed(keys_of(id)[0]))
        if to is not None:
            await self.on(to)

    async def click(self, selector: str) -> None:
        """Click a widget once it stays where it is: between down and up nothing may move."""
        regions = [Region()]

        def at_rest() -> bool:
            regions.append(self.app.screen.query_one(selector).region)
            return regions[-1].area > 0 and regions[-1] == regions[-2]

        await self.until(at_rest, f"{selector} at rest")
        await self.pilot.click(selector)

    async def choose(self, id: str, to: type[Screen[Any]] | None = None) -> None:
        """Press Enter on a row of the menu, once it is there."""
        rows = self.app.screen.query_one("#pairs", OptionList)
        await self.until(lambda: id in {option.id for option in rows.options}, id)
        rows.highlighted = rows.get_option_index(id)
        await self.press("enter", to=to)

    async def click_text(self, text: str) -> None:
        """Click a text where it stands once it stays there."""
        places: list[tuple[int, int] | None] = [None]

        def at_rest() -> bool:
            found = [
                (line.index(text), y)
                for y, line in enumerate(self.text.splitlines())
                if text in line
            ]
            places.append(found[-1] if found else None)
            return places[-1] is not None and places[-1] == places[-2]

        await self.until(at_rest, f"“{text}” at rest on the screen")
        await self.pilot.click(offset=places[-1])

    async def type(self, text: str, *then: str, to: type[Screen[Any]] | None = None) -> None:
        """Type a text, then press keys."""
        names = {" ": "space", "/": "slash", ".": "full_stop", "-": "minus", "_": "underscore"}
        await self.press(*(names.get(char, char) for char in text))
        await self.press(*then, to=to)

    async def sees(self, text: str) -> None:
        await self.until(lambda: text in self.text, f"“{text}” on the screen")

    async def on(self, kind: type[Screen[Any]]) -> None:
        """Wait for a screen of this kind on top; for a chat, until its pair is loaded."""

        def is_there() -> bool:
            screen = self.app.screen
            if not isinstance(screen, kind) or not screen.is_mounted:
                return False
            return not (isinstance(screen, ChatScreen) and screen.load.is_open)

        await self.until(is_there, kind.__name__)
        await self.pilot.pause()

    @property
    def text(self) -> str:
        """What the screen shows, line by line."""
        return "\n".join(strip.text for strip in drawn_strips(self.app.screen))

    def row(self, name: str) -> str:
        """The lowest line that begins with this name: a row of the menu, below its filter."""
        lines = [line.lstrip(" ●○✗↓") for line in self.text.splitlines()]
        return next((line for line in reversed(lines) if line.startswith(f"{name} ")), "")

    async def sees_row(self, name: str, *texts: str) -> None:
        """Wait until the row of this name has all the texts, in this order."""
        wanted = re.compile(".*".join(map(re.escape, texts)))
        await self.until(lambda: wanted.search(self.row(name)), f"{texts} in the row of {name}")

    @property
    def notices(self) -> list[str]:
        """The messages of the notices that stand on the screen."""
        return [notice.message for notice in notices(self.app)]

    @property
    def chat(self) -> ChatScreen:
        screens = [screen for screen in self.app.screen_stack if isinstance(screen, ChatScreen)]
        return screens[-1]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The chat as it would be sent."""
        turns = self.chat.session.turns
        return turns.messages_to(turns.last.id) if turns.last else ()

    @property
    def prompt(self) -> Prompt:
        return self.chat.query_one(Prompt)

    async def open_chat(self) -> None:
        """From the menu into a chat with the first pair."""
        await self.on(MenuScreen)
        await self.sees("● smollm2-135m")
        await self.press("enter")
        await self.on(ChatScreen)

    async def open_settings(self) -> None:
        await self.command("app.settings")
        await self.on(SettingsScreen)

    async def ask(self, text: str, rounds: int | None = None) -> None:
        """Send a prompt; let the engine write that many rounds, or the whole reply."""
        self.engine.budget, n_sent = rounds, len(self.engine.sent)
        self.prompt.load_text(text)
        await self.press("enter")
        # What is refused at once is back in the prompt.
        await self.until(
            lambda: self.prompt.text != text or len(self.engine.sent) > n_sent, "what was sent"
        )
        if rounds is None:
            await self.idle()
        else:
            await self.rounds(rounds)

    async def more_rounds(self, count: int) -> None:
        shown = self.chat.session.shown
        assert shown is not None
        wanted = len(shown.rounds) + count
        self.engine.budget = count
        await self.rounds(wanted)

    async def rounds(self, count: int) -> None:
        def written() -> bool:
            shown = self.chat.session.shown
            return shown is not None and len(shown.rounds) >= count

        await self.until(written, f"{count} rounds")

    async def idle(self) -> None:
        await self.until(lambda: self.chat.session.running is None, "the end of the reply")
        await self.pilot.pause()

    def lend_terminal(self) -> list[str]:
        """Let the app give its terminal to another program; what was done with it, as Textual does
        it: it is not taken back where something is raised."""
        done: list[str] = []

        @contextmanager
        def suspend() -> Iterator[None]:
            done.append("given")
            yield
            done.append("taken back")

        self.app.suspend = suspend  # type: ignore[method-assign]
        return done

    def inside(self, region: Region) -> bool:
        """Whether a region lies on the screen as a whole."""
        return region.area > 0 and self.app.screen.region.contains_region(region)

    async def until_closed(self) -> None:
        """After the app: its thread has closed the engine."""
        for thread in threading.enumerate():
            if thread.name == "engine-close":
                thread.join()
        assert self.engine.closed

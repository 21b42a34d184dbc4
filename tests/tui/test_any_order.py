"""Keys, news of the engine and of downloads in any order: the app neither crashes nor hangs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from textual import events

from eaglechat.hub.errors import OfflineError
from eaglechat.hub.local import pairs
from eaglechat.hub.local.pairs import pair_of_files
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.menu.screen import MenuScreen
from tests.ggufs import write_target
from tests.tui.driving import Driver
from tests.tui.scripted_desk import ScriptedDesk, entry, on_its_way

Drive = Callable[..., Driver]

STEPS = 40
LOAD, CHAT = ("load", "llama.cpp refused the model"), ("prompt", "the prompt is too long")
KEYS = (
    *("enter", "escape", "tab", "shift+tab", "up", "down", "left", "right", "space", "backspace"),
    *("a", "z", "pageup", "pagedown", "home", "end", "delete", "x", "c"),
    *(f"f{number}" for number in range(1, 13)),
    *(f"ctrl+{letter}" for letter in "cdfglnoprtuvx"),
)


class Chance:
    """Does random things to the app; `done` lists them for the message of a failure."""

    def __init__(self, user: Driver, desk: ScriptedDesk, other: Path, seed: int) -> None:
        self.user, self.desk, self.other = user, desk, other
        self.random = random.Random(seed)
        self.done: list[str] = []

    async def step(self) -> None:
        deeds = (self.press, self.press, self.press, self.engine, self.burst, self.elsewhere)
        await self.random.choice(deeds)()

    async def press(self) -> None:
        key = self.random.choice(KEYS)
        self.done.append(key)
        await self.user.press(key)

    async def burst(self) -> None:
        """Keys that come faster than anything is drawn."""
        keys = self.random.choices(("enter", "escape", "down", "a", "f1", "ctrl+g", "d"), k=4)
        self.done.append(f"at once {keys}")
        for key in keys:
            self.user.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await self.user.pilot.pause()

    async def engine(self) -> None:
        engine = self.user.engine
        name, deed = self.random.choice(
            [
                ("dies", lambda: engine.die("GGML_ASSERT(false) failed")),
                ("holds loads", lambda: setattr(engine, "hold_load", True)),
                ("loads", lambda: setattr(engine, "hold_load", False)),
                ("refuses models", lambda: setattr(engine, "load_error", LOAD)),
                ("takes models", lambda: setattr(engine, "load_error", None)),
                ("refuses prompts", lambda: setattr(engine, "chat_error", CHAT)),
                ("takes prompts", lambda: setattr(engine, "chat_error", None)),
                ("writes two rounds", lambda: setattr(engine, "budget", 2)),
                ("writes", lambda: setattr(engine, "budget", None)),
            ]
        )
        self.done.append(f"the engine {name}")
        deed()
        await self.user.pilot.pause()

    async def elsewhere(self) -> None:
        pair, app = pair_of_files(self.other, None), self.user.app
        size = self.random.choice([(80, 24), (44, 12), (20, 5), (120, 40)])
        moving = on_its_way(entry("moving"))
        arrived = replace(moving, stage="installed", pair=pair)
        name, deed = self.random.choice(
            [
                ("a download goes on", lambda: setattr(self.desk, "moving", [moving])),
                ("a pair is installed", lambda: setattr(self.desk, "moving", [arrived])),
                ("another pair", lambda: app.call_later(app.load_instead, pair)),
                ("the theme", lambda: setattr(app, "theme", "eagle-light")),
            ]
        )
        self.done.append(f"{name}, {size}")
        deed()
        await self.user.pilot.resize_terminal(*size)

    async def settle(self) -> None:
        """Whatever was done: from here on everything works again."""
        engine = self.user.engine
        engine.hold_load, engine.budget = False, None
        engine.load_error = engine.chat_error = None
        await self.user.pilot.resize_terminal(120, 40)
        self.user.app.call_later(self.user.app.load_instead, pairs.builtin_pair())


def kinds(user: Driver) -> Sequence[type]:
    return [type(screen) for screen in user.app.screen_stack]


def chats_with(user: Driver, target: Path) -> bool:
    loaded = user.app.services.engine.loaded
    return (
        loaded is not None
        and loaded.target.path == str(target)
        and kinds(user) == [MenuScreen, ChatScreen]
    )


async def test_events_and_keys_in_any_order(drive: Drive, models: Path) -> None:
    desk = ScriptedDesk()
    desk.offer(entry("far-away", 3000))
    desk.plans["far-away"] = OfflineError("no Hub here")
    other = write_target(models / "other.gguf")
    async with drive(size=(120, 40), desk=desk) as user:
        chance = Chance(user, desk, other, seed=0)
        try:
            await user.sees("● smollm2-135m")
            for _ in range(STEPS):
                await chance.step()
                assert kinds(user)[0] is MenuScreen
                assert len(set(kinds(user))) == len(kinds(user))
            await chance.settle()
            await user.until(lambda: chats_with(user, models / "target.gguf"), "a chat")
            await user.press("ctrl+n")
            await user.ask("hello")
            assert [m.role for m in user.messages] == ["user", "assistant"]
            await user.press("ctrl+q")
        except BaseException as error:
            error.args = (f"after {chance.done}: {error}",)
            raise
    await user.until_closed()

"""Takes every picture of the documentation again: the real app with the built-in pair.

    python docs/pictures.py [NAME ...]

Times in the moving picture are those of the machine it runs on. Two are staged: the downloads, with
made-up numbers, and the reasoning, which the built-in model has none of.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import msgspec  # noqa: E402
from film import Frame, film, rows_of, still  # noqa: E402
from tree import tree  # noqa: E402

from eaglechat import paths  # noqa: E402
from eaglechat.engine.templates.dialect import tagged  # noqa: E402
from eaglechat.hub.local.pair_library import PairLibrary  # noqa: E402
from eaglechat.hub.local.pairs import builtin_pair  # noqa: E402
from eaglechat.links.process import ProcessLink  # noqa: E402
from eaglechat.settings.model import Settings  # noqa: E402
from eaglechat.tui.app import EagleApp  # noqa: E402
from eaglechat.tui.commands.keys import keys_of  # noqa: E402
from eaglechat.tui.screens.chat.screen import ChatScreen  # noqa: E402
from eaglechat.wire.protocol import Reasoning  # noqa: E402
from eaglechat.wire.records import Round  # noqa: E402
from tests.tui.driving import pressed  # noqa: E402
from tests.tui.scripted import ScriptedEngine  # noqa: E402
from tests.tui.scripted_desk import ScriptedDesk, entry, on_its_way  # noqa: E402
from tests.tui.textual_private import drawn_strips  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.pilot import Pilot

IMAGES = Path(__file__).parent / "images"
FRAME_S, LAST_S = 0.12, 4.0
PATIENCE_S = 300.0
FIRST_THOUGHT = (
    "<think> The user wants to know whether 91 is prime. It is odd, and its digits sum to 10, so "
    "neither 2 nor 3 divides it. It does not end in 0 or 5. Try 7: 7 times 13 is 91. So 91 is 7 "
    "times 13, and it is not prime. </think> No: 91 is 7 times 13. It looks prime because neither "
    "2, 3 nor 5 divides it."
)
SECOND_THOUGHT = (
    "<think> Now the next prime after 91. 92 is even. 93 is 3 times 31. 94 is even. 95 ends in 5. "
    "96 is even. 97: not divisible by 2, 3, 5 or 7, and 11 squared is 121, which is more than 97, "
    "so I can stop there: 97 is prime. Let me check 7 once more. </think> 97."
)
PROMPT = "Explain the Pythagorean theorem"
FILMED = "Write a Python class for a bank account with tests."


class Camera:
    """The running app, and what was seen of it so far."""

    def __init__(self, app: EagleApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot
        self.frames: list[Frame] = []
        self._begun = time.monotonic()

    def look(self) -> tuple[str, ...]:
        return rows_of(drawn_strips(self.app.screen), self.background)

    @property
    def text(self) -> str:
        return "\n".join(strip.text for strip in drawn_strips(self.app.screen))

    @property
    def background(self) -> str:
        return self.app.get_css_variables()["background"]

    def begin(self) -> None:
        self.frames, self._begun = [], time.monotonic()

    def shoot(self) -> None:
        rows = self.look()
        if not self.frames or rows != self.frames[-1].rows:
            self.frames.append(Frame(time.monotonic() - self._begun, rows))

    async def until(self, condition: Callable[[], object], *, film: bool = False) -> None:
        """Wait; what is not filmed is cut out of the film."""
        begun = time.monotonic()
        while not condition():
            if time.monotonic() > begun + PATIENCE_S:
                raise TimeoutError(self.text)
            await self.pilot.pause(FRAME_S)
            if film:
                self.shoot()
        if not film:
            self._begun += time.monotonic() - begun

    async def command(self, id: str) -> None:
        await self.pilot.press(*pressed(keys_of(id)[0]))

    async def chat(self) -> ChatScreen:
        def is_loaded() -> bool:
            return isinstance(self.app.screen, ChatScreen) and not self.app.screen.load.is_open

        await self.until(is_loaded)
        screen = self.app.screen
        assert isinstance(screen, ChatScreen)
        await self.pilot.pause(FRAME_S)
        return screen

    async def ask(self, chat: ChatScreen, prompt: str) -> None:
        chat.prompt.load_text(prompt)
        await self.pilot.press("enter")
        await self.until(lambda: chat.session.running is not None)

    def save(self, name: str) -> None:
        columns, _ = self.app.size
        write(name, still(self.look(), columns, self.background))

    def save_film(self, name: str) -> None:
        columns, _ = self.app.size
        first = self.frames[0].at
        frames = [replace(frame, at=round(frame.at - first, 2)) for frame in self.frames]
        write(name, film(frames, columns, self.background, frames[-1].at + LAST_S))


def write(name: str, picture: str) -> None:
    (IMAGES / f"{name}.svg").write_text(picture, encoding="utf-8")


@asynccontextmanager
async def running(
    size: tuple[int, int], *, with_chat: bool = True, desk: ScriptedDesk | None = None,
    theme: str = "", max_tokens: int = 160, engine: ScriptedEngine | None = None,
    own_temperature: bool = False,
) -> AsyncIterator[Camera]:  # fmt: skip
    settings = Settings()
    for table, key, value in (
        *(() if own_temperature else (("generation", "temperature", 0.0),)),
        ("generation", "max_tokens", max_tokens),
        *((("interface", "theme", theme),) if theme else ()),
    ):
        settings = settings.with_value(table, key, value)
    with tempfile.TemporaryDirectory() as home:
        app = EagleApp(
            settings=settings,
            engine=engine or ProcessLink((sys.executable, "-m", "eaglechat", "engine"), None),
            pairs=PairLibrary(Path(home) / "state"),
            config_file=Path(home) / "config.toml",
            chats_file=Path(home) / "chats.sqlite3",
            theme_dirs=(paths.builtin_themes_dir(),),
            desk=desk or ScriptedDesk(),
            start=builtin_pair() if with_chat else None,
        )
        app.animation_level = "none"
        async with app.run_test(size=size, notifications=True) as pilot:
            yield Camera(app, pilot)


async def moving() -> None:
    """A reply streams, the headline changes as the length is turned, and a comparison begins."""
    async with running((112, 36), max_tokens=220) as camera:
        chat = await camera.chat()
        camera.begin()
        camera.shoot()
        for character in FILMED:
            chat.prompt.insert(character)
            camera.shoot()
        await camera.pilot.press("enter")
        for n_tokens, turned in (
            (80, ["chat.more"] * 2), (150, ["chat.auto"]),
        ):  # fmt: skip
            await camera.until(lambda n=n_tokens: _tokens(chat) > n, film=True)
            for command in turned:
                await camera.command(command)
                await camera.pilot.pause(FRAME_S)
                camera.shoot()
        await camera.until(lambda: chat.session.running is None, film=True)
        await camera.pilot.pause(1.5)
        camera.shoot()
        await camera.command("chat.compare")
        await camera.until(lambda: "heat 6" in camera.text, film=True)
        camera.save_film("eaglechat")


async def compare() -> None:
    async with running((112, 36), max_tokens=320) as camera:
        chat = await camera.chat()
        await camera.ask(chat, PROMPT)
        await camera.until(lambda: chat.session.running is None)
        await camera.command("chat.compare")
        await camera.until(lambda: "of each" in camera.text)
        await camera.pilot.pause(FRAME_S)
        camera.save("compare")


def _tokens(chat: ChatScreen) -> int:
    shown = chat.session.shown
    return sum(len(round_.tokens) for round_ in shown.rounds) if shown else 0


def mid_reply(name: str, size: tuple[int, int], **how: Any) -> Callable[[], Awaitable[None]]:
    async def take() -> None:
        async with running(size, **how) as camera:
            chat = await camera.chat()
            await camera.ask(chat, PROMPT)
            await camera.until(lambda: _tokens(chat) > 100)
            camera.save(name)

    return take


async def menu() -> None:
    async with running((120, 40), with_chat=False, desk=_desk()) as camera:
        await camera.until(lambda: "● smollm2-135m" in camera.text and "quit" in camera.text)
        camera.save("menu")


async def download() -> None:
    desk = _desk()
    desk.moving = [on_its_way(entry("qwen3-4b"))]
    async with running((100, 30), with_chat=False, desk=desk) as camera:
        await camera.until(lambda: "● smollm2-135m" in camera.text)
        await camera.command("app.downloads")
        await camera.until(lambda: "Space pauses" in camera.text)
        camera.save("download")


async def reasoning() -> None:
    """A thought that is folded, and one that is being written."""
    engine = ScriptedEngine()
    engine.dialect = tagged("<think>", "</think>")
    engine.reasoning = Reasoning(marked=True, on_off=True, can_end=True)
    engine.sampling = {"temperature": 0.6, "top_k": 20, "top_p": 0.95}
    engine.wrong_guesses = (" is", " of", " the", " a", " then", " number", " and", " which")
    engine.plain_ms_per_token = 95.0
    async with running((120, 48), engine=engine, own_temperature=True) as camera:
        chat = await camera.chat()
        engine.reply = FIRST_THOUGHT
        await camera.ask(chat, "Is 91 prime?")
        await camera.until(lambda: chat.session.running is None)
        engine.reply, engine.budget = SECOND_THOUGHT, 17
        await camera.ask(chat, "What is the next prime?")
        await camera.until(lambda: _tokens(chat) > 40)
        chat.show_numbers()
        await camera.pilot.pause(FRAME_S)
        camera.save("reasoning")


async def seen() -> None:
    """What the built-in model would read."""
    async with running((100, 32)) as camera:
        chat = await camera.chat()
        await camera.ask(chat, "Name three colours.")
        await camera.until(lambda: chat.session.running is None)
        chat.prompt.load_text("And three more?")
        await camera.command("chat.prompt")
        await camera.until(lambda: "tokens." in camera.text)
        await camera.pilot.pause(FRAME_S)
        camera.save("seen")


async def drafted_tree() -> None:
    """The first tree whose likeliest token was wrong, and of which the target took others."""
    settings = "--n-draft-max=8", "-ospeculation.shape=tree", "--no-ngram", "--temperature=0"
    with tempfile.NamedTemporaryFile() as trace:
        command = (sys.executable, "-m", "eaglechat", "run", *settings, "--trace", trace.name)
        ran = await asyncio.create_subprocess_exec(*command, "--max-tokens=160", PROMPT)
        await ran.wait()
        rounds = [msgspec.json.decode(line, type=Round) for line in trace]
    before, found = next(
        (before, after)
        for before, after in pairwise(rounds)
        if after.is_tree and after.n_accepted > 1 and after.tokens[0].id != after.drafted[0].id
    )
    write("tree", tree(found, before.tokens[-1].text))


def _desk() -> ScriptedDesk:
    """The catalogue, where the Hub cannot be reached."""
    from eaglechat.hub.catalogue import load  # noqa: PLC0415

    desk = ScriptedDesk()
    for one in load()[0]:
        desk.offer(one)
    return desk


PICTURES: dict[str, Callable[[], Awaitable[None]]] = {
    "eaglechat": moving,
    "chat": mid_reply("chat", (120, 40)),
    "small": mid_reply("small", (80, 24)),
    "light": mid_reply("light", (120, 40), theme="eagle-light"),
    "compare": compare,
    "menu": menu,
    "download": download,
    "reasoning": reasoning,
    "seen": seen,
    "tree": drafted_tree,
}


def main() -> None:
    for name in sys.argv[1:] or PICTURES:
        with suppress(KeyboardInterrupt):
            asyncio.run(PICTURES[name]())
        print(name)


if __name__ == "__main__":
    main()

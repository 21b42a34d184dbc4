"""While a pair is loaded: what is typed, what ends the load, and what comes after it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual import events

from eaglechat.chat.writing.question import text_of
from eaglechat.hub.local import forms, pairs
from eaglechat.hub.local.forms import LoadFile
from eaglechat.hub.local.pairs import Pair, pair_of_files
from eaglechat.tui.commands.keys import key_of
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.dialogs import Ask
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.tui.screens.settings import SettingsScreen
from eaglechat.tui.widgets.prompt.prompt import Prompt
from eaglechat.wire import protocol
from tests.chat.headless import saved_chats
from tests.ggufs import write_target
from tests.tui.driving import WIDE, Driver
from tests.tui.textual_private import Gate

Drive = Callable[..., Driver]


async def begin_to_load(user: Driver) -> Prompt:
    """From the menu to a load that goes on until the script is told otherwise."""
    user.engine.hold_load = True
    await user.on(MenuScreen)
    await user.sees("● smollm2-135m")
    await user.press("enter")
    await user.sees("Loading the target")
    return user.prompt


def loads(user: Driver) -> list[protocol.Load]:
    return user.engine.requests(protocol.Load)


async def test_enter_ends_no_load_and_sends_what_is_typed_when_all_is_loaded(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await begin_to_load(user)
        await user.press("enter", "enter")
        await user.type("hello")
        await user.press("enter")
        await user.sees("Your question will be sent once the models are loaded")
        assert user.chat.load.is_open
        user.engine.hold_load = False
        await user.on(ChatScreen)
        await user.until(lambda: user.engine.requests(protocol.Chat), "the question")
        await user.idle()
        assert user.messages[0].content == "hello"
        assert user.prompt.text == ""
    assert len(loads(user)) == 1


async def test_typing_goes_on_after_enter_and_is_not_sent_half(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await begin_to_load(user)
        await user.type("hello")
        await user.press("enter")
        await user.type(" and")
        await user.until(lambda: "Your question will be sent" not in user.text, "nothing to send")
        user.engine.hold_load = False
        await user.on(ChatScreen)
        assert user.prompt.text == "hello and"
        assert not user.engine.requests(protocol.Chat)


async def test_enter_twice_on_a_row_of_the_menu_loads_once(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.sees("● smollm2-135m")
        await user.press("enter", "enter")
        await user.on(ChatScreen)
        assert len(loads(user)) == 1
        assert [type(screen) for screen in user.app.screen_stack] == [MenuScreen, ChatScreen]


async def test_keys_without_a_pause_from_the_first_to_the_chat(drive: Drive, models: Path) -> None:
    """As a terminal delivers what was typed while nothing was drawn yet."""
    pair = pair_of_files(models / "target.gguf", None)
    async with drive(size=(80, 24), start=pair) as user:
        text = "the quick brown fox jumps over the lazy dog " * 8
        for character in text:
            name = "space" if character == " " else character
            user.app.post_message(events.Key(name, character))
            if character == "z":
                await user.pilot.pause()
        await user.on(ChatScreen)
        await user.until(lambda: len(user.prompt.text) == len(text), "all of it")
        assert user.prompt.text == text


async def test_another_pair_instead_ends_the_load_that_runs(drive: Drive, models: Path) -> None:
    other = write_target(models / "other.gguf")
    async with drive(size=(80, 24)) as user:
        await begin_to_load(user)
        await user.type("for whom it may concern")
        user.app.call_later(user.app.load_instead, pair_of_files(other, None))
        await user.until(lambda: len(loads(user)) == 2, "the second load")
        first, second = loads(user)
        assert second.target == str(other)
        cancels = [one.id for one in user.engine.requests(protocol.Cancel)]
        assert first.id in cancels
        assert second.id not in cancels
        user.engine.hold_load = False
        await user.on(ChatScreen)
        assert [type(screen) for screen in user.app.screen_stack] == [MenuScreen, ChatScreen]
        assert user.prompt.text == "for whom it may concern"
        loaded = user.app.services.engine.loaded
        assert loaded is not None
        assert loaded.target.path == str(other)


async def test_while_its_models_load_a_chat_is_read_and_what_is_typed_is_saved(
    drive: Drive, tmp_path: Path
) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.ask("a question of yesterday")
        await user.press("ctrl+o", to=MenuScreen)
        user.engine.hold_load = True
        await user.press("ctrl+t")
        await user.sees("1 chat")
        await user.press("enter")
        await user.sees("Loading the target")
        await user.sees("a question of yesterday")
        await user.type("more")
        await user.until(
            lambda: [text_of(one.unsent) for one in saved_chats(tmp_path)] == ["more"], "it saved"
        )
        user.engine.hold_load = False
        await user.on(ChatScreen)
        assert user.prompt.text == "more"


async def test_what_was_sent_to_a_load_that_is_cancelled_is_not_sent_to_the_next(
    drive: Drive,
) -> None:
    async with drive(size=(80, 24)) as user:
        await begin_to_load(user)
        await user.type("only for you")
        await user.press("enter", "escape")
        await user.on(MenuScreen)
        user.engine.hold_load = False
        await user.press("enter")
        await user.on(ChatScreen)
        assert user.prompt.text == "only for you"
        assert not user.engine.requests(protocol.Chat)


async def test_what_lies_above_stays_open_when_the_load_is_done(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await begin_to_load(user)
        await user.type("hello")
        await user.command("app.settings")
        await user.on(SettingsScreen)
        user.engine.hold_load = False
        await user.until(lambda: user.app.services.engine.loaded, "the end of the load")
        await user.pilot.pause()
        assert isinstance(user.app.screen, SettingsScreen)
        await user.press("escape")
        await user.on(ChatScreen)
        assert user.prompt.text == "hello"


async def test_what_was_typed_survives_a_load_that_is_cancelled_or_fails(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await begin_to_load(user)
        await user.sees("Loading the target")
        await user.type("hello")
        await user.press("escape")
        await user.on(MenuScreen)
        assert user.engine.requests(protocol.Cancel)
        user.engine.load_error = ("load", "llama.cpp refused the model")
        user.engine.hold_load = False
        await user.press("enter")
        await user.sees("llama.cpp refused the model.")
        await user.type(" again")
        user.engine.load_error = None
        await user.press("enter")
        await user.on(ChatScreen)
        assert user.prompt.text == "hello again"


@pytest.mark.parametrize("size", [(44, 12), WIDE])
async def test_the_prompt_has_its_place_at_every_size(drive: Drive, size: tuple[int, int]) -> None:
    async with drive(size=size) as user:
        prompt = await begin_to_load(user)
        await user.type("hello")
        await user.sees("hello")
        assert user.inside(prompt.region)
        user.engine.die("no such device", exit_status=1)
        await user.sees("Enter tries again")
        # The log above may scroll out of sight, the reason does not.
        await user.sees("The engine stopped")
        user.app.call_later(user.app.load_instead, pairs.builtin_pair())
        user.engine.hold_load = False
        await user.on(ChatScreen)
        assert user.prompt.text == "hello"


def to_reencode(models: Path) -> Pair:
    return replace(pair_of_files(models / "target.gguf", models / "draft.gguf"), reencode=True)


async def test_the_copy_of_a_slow_target_is_what_is_loaded(
    drive: Drive, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy.gguf"
    note = "Drafted 231 tok/s in a Q4_0 copy; the packaged Q4_1 runs plainly at 165 tok/s."
    monkeypatch.setattr(forms, "target_to_load", lambda *_: LoadFile(copy, note=note))
    async with drive(size=(80, 24)) as user:
        await user.on(MenuScreen)
        user.app.call_later(user.app.load_instead, to_reencode(models))
        await user.on(ChatScreen)
        assert [load.target for load in loads(user)] == [str(copy)]
        await user.sees("Q4_1 runs plainly at 165")


async def test_a_load_that_is_left_while_the_target_is_copied_never_begins(
    drive: Drive, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_left, ended = Gate(), threading.Event()

    def copying(*asked: Any) -> LoadFile:
        follow: Callable[[float], None] = asked[-1]
        try:
            follow(0.5)
            is_left.wait()
            follow(0.6)
        finally:
            ended.set()
        return LoadFile(models / "target.gguf")

    monkeypatch.setattr(forms, "target_to_load", copying)
    async with drive(size=(80, 24)) as user:
        await user.on(MenuScreen)
        user.app.call_later(user.app.load_instead, to_reencode(models))
        await user.sees("Measuring which form of the target drafts fastest here (only once)")
        await user.sees("50%")
        await user.press("escape")
        await user.on(MenuScreen)
        is_left.set()
        await user.until(ended.is_set, "the end of the copy")
        await user.pilot.pause()
        assert not loads(user)


async def test_the_pair_that_shows_drafting_says_who_chose_its_length(drive: Drive) -> None:
    async with drive(size=(140, 40)) as user:
        await user.open_chat()
        await user.sees("drafts 3 tokens per")
        await user.sees(f"{key_of('chat.auto')} lets measurement choose")
        await user.command("chat.auto")
        await user.until(lambda: user.chat.session.controls.n_draft_max == "auto", "auto")


async def test_a_target_that_is_missing_leaves_nothing_to_load_without(
    drive: Drive, tmp_path: Path
) -> None:
    pair = pair_of_files(tmp_path / "nope.gguf", None)
    user = drive(size=(80, 24), start=pair)
    user.engine.load_error = ("preflight", "the target nope.gguf does not exist")
    async with user:
        await user.sees("The target nope.gguf does not exist.")
        await user.sees("Choose other files in the menu")
        await user.type("but this is kept")
        await user.sees("but this is kept")
        await user.press("escape")
        await user.on(MenuScreen)


@pytest.mark.parametrize(
    ("trouble", "said", "advice"),
    [
        ("load", "llama.cpp refused the model.", "A smaller context"),
        ("start", "Cannot start the engine with “nope”.", "engine.command"),
        ("died", "The engine stopped by itself", "eaglechat doctor"),
        ("protocol", "The engine speaks version 99", "same version"),
    ],
)
async def test_a_load_that_fails_says_why_and_can_be_tried_again(
    drive: Drive, trouble: str, said: str, advice: str
) -> None:
    user = drive(size=(80, 24))
    if trouble == "load":
        user.engine.load_error = ("load", "llama.cpp refused the model")
    elif trouble == "start":
        user.engine.start_error = "cannot start the engine with “nope”"
    elif trouble == "protocol":
        user.engine.protocol = 99
        user.engine.hold_load = True
    else:
        user.engine.hold_load = True
    async with user:
        await user.sees("● smollm2-135m")
        await user.press("enter")
        await user.until(lambda: type(user.app.screen) is ChatScreen, "the chat")
        if trouble == "died":
            user.engine.die("no such device", exit_status=1)
        await user.sees(said)
        await user.sees(advice)
        await user.sees("Cannot load smollm2-135m")
        if trouble == "died":
            await user.command("loading.log", to=Ask)
            await user.sees("no such device")
            await user.press("escape")
        user.engine.load_error = user.engine.start_error = None
        user.engine.hold_load = False
        user.engine.protocol = protocol.PROTOCOL_VERSION
        if trouble == "load":
            await user.click_text("Ctrl+G B without draft")
            await user.on(ChatScreen)
            load = user.engine.requests(protocol.Load)[-1]
            assert (Path(load.target).name, load.draft) == ("target.gguf", None)
            return
        await user.press("enter")
        await user.on(ChatScreen)


async def test_a_load_that_crashes_to_the_end_leaves_room_for_a_way_out(drive: Drive) -> None:
    user = drive(size=(80, 24))
    async with user:
        await begin_to_load(user)
        for said in ("without repacked weights", "and the GPU", "Enter tries again"):
            user.engine.die(*["a line of the log"] * 8, exit_status=-4)
            await user.sees(said)
        await user.sees("and the GPU too")
        await user.sees("Esc back")


async def test_a_long_paste_typed_while_a_pair_loads_is_asked_whole(drive: Drive) -> None:
    pasted = "\n".join(f"line {number}" for number in range(40))
    async with drive() as user:
        await begin_to_load(user)
        user.app.post_message(events.Paste(f"{pasted}\n"))
        await user.until(lambda: "[pasted: 40 lines, " in user.text, "its mark")
        await user.type("sum up", "enter")
        user.engine.hold_load = False
        await user.on(ChatScreen)
        await user.idle()
        assert user.messages[0].content == f"{pasted}\nsum up"


async def test_a_chat_goes_on_where_its_engine_died(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.ask("one")
        user.engine.die("the end")
        await user.sees("engine stopped")
        user.engine.hold_load = True
        await user.command("chat.load_again", "chat.load_again")
        await user.sees("Loading the target")
        await user.type("two", "escape")
        await user.sees("engine stopped")
        assert user.prompt.text == "two"
        await user.command("chat.load_again")
        await user.sees("Loading the target")
        await user.press("enter")
        await user.sees("Your question will be sent once the models are loaded")
        user.engine.hold_load = False
        await user.until(lambda: len(user.messages) == 4, "the question")
        await user.idle()
        assert [one.content for one in user.messages if one.role == "user"] == ["one", "two"]
    assert len(loads(user)) == 3

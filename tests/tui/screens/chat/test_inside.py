"""Inside a round, from a key and from a click, in new chats and reopened ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from eaglechat.settings.config_file import load
from eaglechat.settings.model import InterfaceSettings, Settings, View
from eaglechat.tui.screens.chat.inside import InsideScreen
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.widgets.transcript.transcript import Transcript
from eaglechat.wire import protocol
from tests.tui.driving import WIDE, Driver
from tests.tui.widgets.transcript_app import shown_in

Drive = Callable[..., Driver]


def inspecting(user: Driver) -> None:
    """Have what the target holds likely recorded."""
    settings = user.app.services.settings
    settings.change("interface", "inspect", True)


@pytest.mark.parametrize("size", [(80, 24), WIDE])
async def test_the_last_round_then_those_before_it(drive: Drive, size: tuple[int, int]) -> None:
    async with drive(size=size) as user:
        inspecting(user)
        await user.open_chat()
        await user.ask("Which colour?")
        await user.command("chat.inspect", to=InsideScreen)
        await user.press("home")
        await user.sees("Round 1 of")
        await user.sees("3 tokens drafted (EAGLE-3), 3 tested, 3 accepted; 4 tokens gained.")
        await user.sees("parasol")
        await user.press("right")
        await user.sees("Round 2 of")
        await user.sees("3 tokens drafted (EAGLE-3), 2 tested, 1 accepted; 2 tokens gained.")
        await user.sees("“ umbrella” was rejected at random: its chance was 25%.")
        await user.sees("Drafted, not tested: “ umbrella” 80%")
        await user.press("left", "left")
        await user.sees("Round 1 of")
        await user.press("escape", to=ChatScreen)


async def test_without_a_record_i_answers_again_with_one_and_shows_the_same_round(
    drive: Drive, tmp_path: Path
) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("Which colour?")
        first = user.messages[-1]
        await user.command("chat.inspect", to=InsideScreen)
        await user.press("home", "right")
        await user.sees("were not recorded: i records them from now on and answers again.")
        assert "parasol" not in user.text
        user.engine.budget = 1
        await user.command("inside.record")
        await user.sees("Round 1 of 1 so far")
        user.engine.budget = None
        await user.sees("Round 2 of")
        await user.sees("parasol")
        await user.idle()
        asked, again = user.engine.requests(protocol.Chat)
        assert (asked.top, again.top > 0) == (0, True)
        assert again.sampling == asked.sampling
        assert user.messages[-1] == first
        await user.press("i", "escape", to=ChatScreen)
        assert len(user.engine.requests(protocol.Chat)) == 2
    assert load(tmp_path / "config.toml")[0].interface.inspect


async def test_the_end_of_a_reply_is_named_and_words_are_whole(drive: Drive) -> None:
    async with drive(size=(200, 50)) as user:
        await user.open_chat()
        user.engine.reply = ""
        await user.ask("Say nothing")
        await user.command("chat.inspect", to=InsideScreen)
        await user.sees("• end of the reply")
        await user.press("escape", to=ChatScreen)
        user.engine.reply = " ".join(f"word{n:03}" for n in range(90))
        await user.ask("Say much")
        await user.command("chat.inspect", to=InsideScreen)
        await user.sees("… word")


async def test_a_second_reply_is_not_begun_while_one_is_written(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("Which colour?", rounds=2)
        await user.command("chat.inspect")
        await user.command("inside.record")
        await user.sees("A reply is being written")
        await user.sees("so far")
        user.engine.budget = None
        await user.until(lambda: "so far" not in user.text, "the end of the reply")
        assert not user.app.services.settings.current.interface.inspect


@pytest.mark.parametrize("view", ["live", "read"])
async def test_a_click_on_a_token_of_the_selected_reply_opens_its_round(
    drive: Drive, view: View
) -> None:
    async with drive(settings=Settings(interface=InterfaceSettings(view=view))) as user:
        await user.open_chat()
        await user.ask("Which colour?")
        transcript = user.chat.transcript
        [reply] = shown_in(transcript, "reply")
        await user.pilot.click(Transcript, offset=reply.at(4, 0))
        await user.until(lambda: transcript.selected == reply.entry.turn, "the reply is selected")
        await user.pilot.click(Transcript, offset=reply.at(4, 0))
        await user.on(InsideScreen)
        await user.sees("Round 1 of")


async def test_an_engine_that_does_not_report_it_is_named(drive: Drive) -> None:
    user = drive()
    user.engine.engine_name = "llama-server"
    user.engine.can = msgspec.structs.replace(user.engine.can, own=False)
    async with user:
        await user.open_chat()
        await user.ask("Which colour?")
        await user.command("chat.inspect")
        await user.press("home", "right")
        await user.sees("are not reported by llama-server")
        await user.sees("a token")

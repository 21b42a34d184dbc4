"""One search over commands, settings and words: of the palette, the leader's list and the help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from eaglechat.settings.config_file import load
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.help import Entry, HelpScreen, entries, ranked
from eaglechat.tui.screens.more import MoreScreen
from eaglechat.tui.screens.settings import SettingsScreen
from tests.tui.driving import Driver

Drive = Callable[..., Driver]

MEANT = {
    "retry": "Answer again",
    "regenerate": "Answer again",
    "benchmark": "Compare",
    "history": "Past chats",
    "exit": "Quit",
    "system persona": "Role",
    "copy": "Copy",
    "code": "Copy code",
    "inspect": "interface.inspect: on",
    "tree": "shape: tree",
    "markdown": "Export: markdown",
    "undo": "Undo a deletion",
    "faster": "Auto length",
    "theme: eagle-light": "interface.theme: eagle-light",
    "view trace": "View: trace",
    "temp": "temperature",
    "bonus": "bonus",
    "download": "Downloads",
    "pin": "Pin (in the past chats)",
}


def test_a_name_comes_before_what_else_it_is_called_and_that_before_a_sentence() -> None:
    name, word = Entry("Retry", ""), Entry("Again", "", ("retry",))
    sentence = Entry("Errors", "Then retry it")
    known = (sentence, word, name, Entry("Other", "Not it"))
    assert ranked(known, "RETRY") == [name, word, sentence]
    assert ranked(known, "retry nothing") == ranked(known, " ") == []


async def test_everything_is_found_by_what_one_calls_it(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        known = entries(user.app, user.chat)
        first = {query: ranked(known, query)[0].name for query in MEANT}
        assert first == MEANT


async def test_the_list_behind_the_leader_shows_states_and_searches(
    drive: Drive, tmp_path: Path
) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.command("app.leader", to=MoreScreen)
        for shown in ("Reply", "Turn", "Speed", "Speculation on", "View live", "Theme", "Help"):
            assert shown in user.text
        await user.press("space", to=HelpScreen)
        assert not any(isinstance(screen, MoreScreen) for screen in user.app.screen_stack)
        await user.type("eagle-light")
        await user.sees("interface.theme: eagle-light")
        await user.press("enter")
        await user.until(lambda: user.app.theme == "eagle-light", "the theme")
        await user.on(ChatScreen)
        assert load(tmp_path / "config.toml")[0].interface.theme == "eagle-light"


async def test_a_setting_that_is_found_is_shown_among_the_settings(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        for from_settings in (False, True):
            if from_settings:
                await user.type("nothing like this")
            await user.command("app.palette", to=HelpScreen)
            await user.type("engine.checkpoints_mib")
            await user.sees("setting")
            await user.press("enter", to=SettingsScreen)
            await user.sees("checkpoints_mib")
            assert isinstance(user.app.screen, SettingsScreen)
            shown = user.app.screen.highlighted
            assert shown is not None
            assert shown.name == "engine.checkpoints_mib"
            assert user.app.screen.words.value == ""
            user.app.screen.go_to("interface.theme")


async def test_a_command_that_has_nothing_to_work_on_says_so(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        for id in (
            "chat.again", "chat.answer_now", "chat.copy", "chat.copy_code", "chat.delete_turn",
            "chat.edit", "chat.export", "chat.go_on", "chat.inspect", "chat.newer_version",
            "chat.open_link", "chat.thought", "chat.turn_before", "chat.undo_delete",
            "prompt.open_part",
        ):  # fmt: skip
            user.app.clear_notifications()
            await user.command(id)
            assert user.notices, id
        assert user.app.screen is user.chat
        assert user.messages == ()


async def test_the_help_is_in_groups_and_uses_the_room(drive: Drive) -> None:
    async with drive(size=(120, 60)) as user:
        await user.open_chat()
        await user.press("f1", to=HelpScreen)
        rows = [line.strip(" │") for line in user.text.splitlines()]
        groups = [row for row in rows if row in ("Keys", "Reply", "Turn", "View", "Words")]
        assert groups == ["Keys", "Reply", "Turn", "View"]
        assert "Enter runs it" in user.text
        await user.press("end")
        await user.until(lambda: "Enter runs it" not in user.text, "a word, which is read")
        await user.sees("Words")

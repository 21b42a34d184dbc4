"""One search over commands, settings and words: of the palette, the leader's list and the help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from textual.command import CommandPalette

from eaglechat.settings import load
from eaglechat.tui.commands.bindings import active_commands
from eaglechat.tui.commands.search import Entry, ranked
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.help import HelpScreen
from eaglechat.tui.screens.more import Column, MoreScreen
from eaglechat.tui.screens.palette import found
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
    "temp 0.8": "temperature: 0.8",
    "bonus": "bonus",
    "download": "Downloads",
    "pin": "Pin (in the past chats)",
}


def test_a_name_comes_before_what_else_it_is_called_and_that_before_a_sentence() -> None:
    name, word = Entry("Retry", ""), Entry("Again", "", ("retry",))
    sentence = Entry("Errors", "Then retry it")
    entries = (sentence, word, name, Entry("Other", "Not it"))
    assert [one for _, one in ranked(entries, "RETRY")] == [name, word, sentence]
    assert ranked(entries, "retry nothing") == ranked(entries, " ") == []


async def test_everything_is_found_by_what_one_calls_it(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        first = {query: found(user.app, user.chat, query)[0][1].name for query in MEANT}
        assert first == MEANT


async def test_the_list_behind_the_leader_shows_states_and_searches(
    drive: Drive, tmp_path: Path
) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.command("app.leader", to=MoreScreen)
        for shown in ("Reply", "Turn", "Speed", "Speculation on", "View live", "Theme", "Help"):
            assert shown in user.text
        await user.press("space", to=CommandPalette)
        assert not any(isinstance(screen, MoreScreen) for screen in user.app.screen_stack)
        await user.type("eagle-light")
        await user.sees("interface.theme: eagle-light")
        await user.press("enter")
        await user.until(lambda: user.app.theme == "eagle-light", "the theme")
        await user.on(ChatScreen)
        assert load(tmp_path / "config.toml")[0].interface.theme == "eagle-light"


async def test_what_has_nothing_to_work_on_is_dim_behind_the_leader_and_says_so(
    drive: Drive,
) -> None:
    def dim(user: Driver) -> set[str]:
        columns = user.app.screen.query(Column)
        rows = [row for column in columns for row in column.options]
        muted = [
            row.prompt
            for row in rows
            if not any("$accent" in one.style for one in row.prompt.spans)
        ]
        return {" ".join(row.plain.split()[1:]) for row in muted}

    async with drive() as user:
        await user.open_chat()
        await user.command("app.leader", to=MoreScreen)
        in_empty_chat = dim(user)
        assert {"Continue", "Copy code", "Answer now", "Undo a deletion"} <= in_empty_chat
        await user.press("escape")
        by_title = {one.command.title: one.command for one in active_commands(user.chat)}
        said = 0
        for title in sorted(in_empty_chat):
            await user.command(by_title[title].id)
            assert len(user.notices) > said, title
            said = len(user.notices)
        assert user.app.screen is user.chat
        assert user.messages == ()
        user.engine.reply = "```\ncode\n```\nhttps://example.org"
        await user.ask("hello")
        await user.command("app.leader", to=MoreScreen)
        assert dim(user) == {
            "Answer now", "Continue", "Expand a paste", "Fold reasoning", "Newer version",
            "Older version", "Undo a deletion",
        }  # fmt: skip


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


async def test_the_help_runs_what_it_finds(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.press("f1", to=HelpScreen)
        await user.type("speculation")
        await user.sees("F3")
        await user.press("enter")
        await user.until(lambda: not user.chat.controls.enabled, "no speculation")
        await user.on(ChatScreen)

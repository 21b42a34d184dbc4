"""Pastes and files in the prompt: one line each, whole when sent, and never lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual import events

from eaglechat.tui.widgets.prompt.prompt import Completions
from eaglechat.wire import protocol
from tests.tui.driving import WIDE, Driver

Drive = Callable[..., Driver]
LONG = "\n".join(f"line {n}" for n in range(132))
TALL = "\n".join(f"line {n}" for n in range(20))
MARK = "[pasted: 132 lines, ~270 tokens]"


async def paste(user: Driver, text: str) -> None:
    user.app.post_message(events.Paste(text))
    await user.pilot.pause()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a text file, a binary and a folder."""
    place = tmp_path / "work"
    (place / "docs").mkdir(parents=True)
    (place / "docs" / "my notes.md").write_text("# Notes\n")
    (place / "plan.txt").write_text("Do it.\n")
    (place / "image.png").write_bytes(b"\0\0")
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize("size", [(80, 24), WIDE])
async def test_a_long_paste_is_one_line_and_sent_whole(drive: Drive, size: tuple[int, int]) -> None:
    async with drive(size=size) as user:
        await user.open_chat()
        await user.type("Sum up: ")
        await paste(user, LONG)
        await user.until(lambda: user.prompt.text == f"Sum up: {MARK}", "one line")
        await user.press("enter")
        await user.until(lambda: len(user.messages) == 2, "a reply")
        assert user.messages[0].content == f"Sum up: {LONG}"
        await user.sees(MARK)
        await user.press("up")
        assert user.prompt.text == f"Sum up: {MARK}"


async def test_a_paste_is_opened_deleted_and_brought_back_whole(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await paste(user, LONG)
        await user.until(lambda: user.prompt.text == MARK, "one line")
        await user.press("left", "left", "x")
        assert user.prompt.text == f"{MARK}x"
        await user.press("left", "left", "backspace")
        assert user.prompt.text == "x"
        await user.press("ctrl+z")
        await user.until(lambda: user.prompt.text == f"{MARK}x", "undone")
        await user.command("prompt.open_part")
        await user.until(lambda: user.prompt.text == f"{LONG}x", "the lines")
        await user.command("prompt.open_part")
        await user.sees("There is no paste")


async def test_the_last_line_is_deleted_by_its_key(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.press("ctrl+k")
        await user.type("first")
        await user.press("ctrl+j")
        await user.type("last")
        await user.press("ctrl+x")
        await user.until(lambda: "last" not in user.prompt.text, "no last line")
        await user.press("ctrl+z")
        await user.until(lambda: user.prompt.text == "first\nlast", "all of it")


async def test_a_short_paste_is_text_and_a_long_line_is_not(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await paste(user, "one\ntwo")
        await user.until(lambda: user.prompt.text == "one\ntwo", "the text")
        await paste(user, "x" * 81_000)
        await user.until(
            lambda: user.prompt.text == "one\ntwo[pasted: 81 kB, ~20,250 tokens]", "one line"
        )


@pytest.mark.parametrize("before", ["", "first\n"])
async def test_a_paste_higher_than_the_prompt_is_undone_and_redone(
    drive: Drive, before: str
) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await paste(user, before)
        await paste(user, TALL)
        await user.until(lambda: user.prompt.show_vertical_scrollbar, "a prompt that scrolls")
        await user.press("ctrl+z")
        await user.until(lambda: user.prompt.text == before, "undone")
        assert user.prompt.cursor_location == user.prompt.document.end
        await user.press("ctrl+y")
        await user.until(lambda: user.prompt.text == before + TALL, "redone")
        assert user.prompt.cursor_location == user.prompt.document.end


@pytest.mark.usefixtures("folder")
async def test_a_file_is_chosen_shown_and_sent_as_a_part(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.type("Read @")
        await user.sees("docs/")
        await user.type("d")
        await user.press("tab")
        await user.sees("my notes.md")
        assert user.inside(user.chat.query_one(Completions).region)
        await user.press("enter")
        await user.sees("[docs/my notes.md: 35 B, ~9 tokens]")
        assert not user.engine.requests(protocol.Chat)
        await user.press("enter")
        await user.until(lambda: len(user.messages) == 2, "a reply")
        await user.idle()
        assert user.messages[0].content == "Read\n\ndocs/my notes.md:\n```md\n# Notes\n```"
        await user.command("chat.edit")
        assert "[docs/my notes.md: 35 B, ~9 tokens]" in user.prompt.text
        await user.press("end", "!", "enter")
        await user.until(lambda: user.messages[0].content.endswith("!"), "another wording")
        assert user.messages[0].content.count("# Notes") == 1


async def test_a_long_name_stands_apart_from_its_size_and_what_is_too_large_says_so(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"n{'x' * length}.txt" for length in (17, 18, 19, 20, 21, 30, 60)]
    for name in names:
        (tmp_path / name).write_text("some")
    (tmp_path / "nlarge.txt").write_bytes(bytes(2**20 + 1))
    monkeypatch.chdir(tmp_path)
    async with drive() as user:
        await user.open_chat()
        await user.type("@n")
        for name in names:
            await user.sees(f"{name}  ")
        await user.sees("1.0 MB, too large")


@pytest.mark.usefixtures("folder")
async def test_a_binary_is_refused_and_an_address_is_text(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.type("me@example.org")
        assert user.chat.query_one(Completions).offered is None
        await user.type(" @im")
        await user.sees("image.png")
        await user.press("enter")
        await user.sees("image.png is not a text file.")
        assert user.prompt.text == "me@example.org @image.png"

"""Finding in the open chat: matches one by one, and back to where the reader was."""

from __future__ import annotations

from collections.abc import Callable

from rich.style import Style

from eaglechat.tui.widgets.find_bar import FindBar
from tests.tui.driving import Driver

Drive = Callable[..., Driver]


def found(user: Driver) -> str:
    return str(user.chat.query_one("#found").render())


async def asked(user: Driver) -> None:
    await user.open_chat()
    user.engine.reply = "An apple a day.\n" * 10
    for _ in range(3):
        await user.ask("Give me an Äpple")


async def test_places_are_shown_one_by_one_and_escape_goes_back(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await asked(user)
        transcript = user.chat.transcript
        transcript.scroll_to(y=5, animate=False)
        await user.until(lambda: transcript.scroll_y == 5, "a place")
        await user.command("chat.find")
        await user.type("give")
        await user.until(lambda: "3 of 3" in found(user), "the last place")
        assert transcript.marked is not None
        await user.press("up")
        await user.until(lambda: "2 of 3" in found(user), "the one before")
        await user.press("enter")
        await user.until(lambda: "1 of 3" in found(user), "the first place")
        await user.press("enter")
        await user.until(lambda: "3 of 3" in found(user), "around")
        await user.press("down")
        await user.until(lambda: "1 of 3" in found(user), "around again")
        last_line = user.text.splitlines()[-1]
        assert "Esc back" in last_line
        assert "quit" not in last_line
        await user.press("escape")
        await user.until(lambda: transcript.scroll_y == 5, "the place before")
        assert not user.chat.query_one(FindBar).is_open
        assert transcript.marked is None
        await user.type("typed")
        assert user.prompt.text == "typed"


async def test_all_places_in_sight_are_underlined_until_the_line_closes(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await asked(user)
        transcript = user.chat.transcript

        def drawn(is_so: Callable[[Style], object]) -> list[str]:
            rows = map(transcript.render_line, range(transcript.size.height))
            return [part.text for row in rows for part in row if part.style and is_so(part.style)]

        await user.command("chat.find")
        await user.type("an apple")
        await user.until(lambda: "33 of 33" in found(user), "the last place")
        underlined = "".join(drawn(lambda style: style.underline))
        assert underlined == "an Äpple" + 10 * "An apple"
        assert "".join(drawn(lambda style: style.reverse)) == "An apple"
        await user.press("escape")
        assert not drawn(lambda style: style.underline)


async def test_what_is_not_there_is_said_and_accents_do_not_matter(drive: Drive) -> None:
    async with drive() as user:
        await asked(user)
        await user.command("chat.find")
        await user.type("zebra")
        await user.until(lambda: "not found" in found(user), "the word")
        await user.press("enter", "up")
        user.chat.query_one(FindBar).value = "AN APPLE"
        await user.until(lambda: " of 33" in found(user), "all of them")


async def test_the_same_key_closes_the_line_and_the_place_stays(drive: Drive) -> None:
    """Escape goes back to the end, and another chat has none of the places."""
    async with drive(size=(80, 24)) as user:
        await asked(user)
        await user.command("chat.find")
        await user.type("give")
        await user.press("down")
        await user.until(lambda: "1 of 3" in found(user), "the first place")
        transcript = user.chat.transcript
        await user.until(lambda: transcript.scroll_y < transcript.max_scroll_y - 5, "its place")
        await user.command("chat.find")
        await user.until(lambda: not user.chat.query_one(FindBar).is_open, "the line closed")
        await user.pilot.pause()
        assert transcript.scroll_y < transcript.max_scroll_y - 5
        assert user.prompt.has_focus
        transcript.scroll_end(animate=False)
        await user.until(lambda: transcript.is_following, "the end")
        await user.command("chat.find")
        await user.until(lambda: "3 of 3" in found(user), "the last place")
        await user.press("down")
        await user.until(lambda: not transcript.is_following, "the first place")
        await user.press("escape")
        await user.until(lambda: transcript.is_following, "the end again")
        await user.command("chat.find")
        await user.until(lambda: "3 of 3" in found(user), "the places")
        await user.command("chat.new")
        await user.until(lambda: not user.chat.query_one(FindBar).is_open, "the line closed")
        assert user.chat.transcript.marked is None
        await user.type("typed")
        assert user.prompt.text == "typed"

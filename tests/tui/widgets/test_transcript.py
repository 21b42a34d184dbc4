"""The transcript: what the records say is what is seen; what is copied is only what was said."""

from __future__ import annotations

import random
import re

import pytest
from msgspec.structs import replace
from textual.color import Color
from textual.events import MouseScrollUp
from textual.pilot import Pilot

from eaglechat.chat.recording import Recording, Terms
from eaglechat.settings.model import View
from eaglechat.tui.widgets.transcript.transcript import Transcript
from eaglechat.words.timeline import Entry
from tests.tui.widgets.transcript_app import (
    ROUNDS,
    THEMES,
    Shown,
    TranscriptApp,
    drawn_rows,
    drawn_segments,
    flags,
    make_end,
    make_round,
    on_screen,
    random_rounds,
    segment_of,
    shown_reply,
    until,
)


async def drag(pilot: Pilot[None], start: tuple[Shown, int, int], end: tuple[Shown, int, int]):
    """Select with the mouse, from cell (x, y) of one entry to a cell of another."""
    await pilot.mouse_down(Transcript, offset=start[0].at(*start[1:]))
    await pilot.hover(Transcript, offset=end[0].at(*end[1:]))
    await pilot.mouse_up(Transcript, offset=end[0].at(*end[1:]))


@pytest.mark.parametrize("view", ["live", "trace"])
@pytest.mark.parametrize("seed", range(2))
async def test_streaming_draws_what_drawing_all_at_once_draws(seed: int, view: View) -> None:
    rng = random.Random(seed)
    rounds = list(random_rounds(seed, 120))
    app = TranscriptApp(view)
    async with app.run_test(size=(rng.randint(12, 60), 400)) as pilot:
        streamed = await shown_reply(app, pilot)
        left = list(rounds)
        while left:
            size = rng.randint(1, 9)
            app.write(streamed, left[:size])
            del left[:size]
            if rng.random() < 0.5:
                await until(pilot, lambda: on_screen(streamed) == drawn_rows(streamed))
        whole = await shown_reply(app, pilot, rounds)
        await until(pilot, lambda: streamed.size.height == whole.size.height > 1)
        assert drawn_rows(streamed) == drawn_rows(whole)
        assert streamed.text == "".join(round.text for round in rounds)


@pytest.mark.parametrize(
    ("tail", "note", "shown"),
    [
        (" three", "", ["• one two three"]),
        (" three", "stopped", ["• one two three", "  stopped"]),
        ("", "cut off here", ["• one two", "  cut off here"]),
    ],
)
async def test_how_a_reply_ended_is_said_but_not_copied(
    tail: str, note: str, shown: list[str]
) -> None:
    app = TranscriptApp()
    async with app.run_test() as pilot:
        reply = await shown_reply(app, pilot, [make_round(["one"], " two")])
        app.end(reply, make_end(tail=tail) if tail else None, note)
        await until(pilot, lambda: reply.size.height == len(shown))
        assert drawn_rows(reply) == shown
        assert reply.text == f"one two{tail}"
        await drag(pilot, (reply, 0, 0), (reply, 60, len(shown) - 1))
        assert app.screen.get_selected_text() == reply.text


async def test_entries_are_shown_in_their_order_and_others_come_between() -> None:
    app = TranscriptApp()
    async with app.run_test():
        for text in ("one", "two", "three"):
            app.add("question", text)
        zero, middle = Entry("zero", "question", "zero"), Entry("middle", "warning", "middle")
        app.transcript.show([zero, app.shown[0], middle, app.shown[2]])
        texts = [drawn_rows(entry)[0] for entry in app.entries()]
        assert texts == ["> zero", "> one", "! middle", "> three"]


async def test_selection_by_mouse_gives_text_without_rejected_tokens() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(30, 24)) as pilot:
        rounds = [
            make_round(["def", " sort"], "(items):\n", rejected=" quick"),
            make_round([], "\treturn"),
            make_round([" the", " sorted", " list", " of", " items"], ".", rejected="\nand"),
        ]
        reply = await shown_reply(app, pilot, rounds)
        assert drawn_rows(reply) == [
            "• def sort quick(items):",
            "      return the sorted",
            "  list of items↵and.",
        ]
        await drag(pilot, (reply, 6, 0), (reply, 8, 2))
        assert app.screen.get_selected_text() == "sort(items):\n\treturn the sorted list of"
        await drag(pilot, (reply, 2, 0), (reply, 4, 0))
        assert app.screen.get_selected_text() == "def"
        await drag(pilot, (reply, 26, 2), (reply, 0, 0))
        everything = "def sort(items):\n\treturn the sorted list of items."
        assert app.screen.get_selected_text() == everything
        assert reply.text == everything


async def test_selected_text_is_highlighted_and_rejected_tokens_in_it_are_not() -> None:
    app = TranscriptApp()
    async with app.run_test() as pilot:
        reply = await shown_reply(app, pilot, ROUNDS)
        ground = segment_of(reply, " seven").style.bgcolor
        await drag(pilot, (reply, 6, 0), (reply, 19, 0))
        selected = "".join(
            segment.text for segment in drawn_segments(reply) if segment.style.bgcolor != ground
        )
        assert selected == app.screen.get_selected_text() == "two three"
        assert flags(segment_of(reply, "three").style) == {"underline"}
        assert all(
            segment.style.color != segment.style.bgcolor for segment in drawn_segments(reply)
        )
        await pilot.click(Transcript, offset=reply.at(4, 0))
        await until(pilot, lambda: not app.screen.selections)
        assert {segment.style.bgcolor for segment in drawn_segments(reply)} == {ground}


async def test_a_selection_outlives_a_resize_and_what_streams_in() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(60, 24)) as pilot:
        reply = await shown_reply(app, pilot, ROUNDS)
        await drag(pilot, (reply, 6, 0), (reply, 18, 0))
        selected = app.screen.get_selected_text()
        assert selected
        assert "two three".startswith(selected)
        app.write(reply, ROUNDS)
        await pilot.resize_terminal(14, 24)
        await until(pilot, lambda: reply.size.height > 3)
        assert app.screen.get_selected_text() == selected


async def test_a_selection_over_several_entries_is_their_texts() -> None:
    app = TranscriptApp()
    async with app.run_test() as pilot:
        app.add("question", "first line\nsecond line")
        reply = await shown_reply(app, pilot, ROUNDS)
        [user] = app.entries("question")
        await drag(pilot, (user, 2, 1), (reply, 60, 0))
        assert app.screen.get_selected_text() == f"second line\n{reply.text}"


async def test_the_transcript_follows_until_the_reader_scrolls_up() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, 12)) as pilot:
        transcript = app.transcript
        line = make_round([" some", " words"], "\n")
        reply = await shown_reply(app, pilot, [line] * 30)
        await until(pilot, lambda: transcript.max_scroll_y > 15)
        assert transcript.scroll_y == transcript.max_scroll_y

        async def stream() -> None:
            height = reply.size.height
            app.write(reply, [line] * 5)
            await until(pilot, lambda: reply.size.height == height + 5)

        await stream()
        assert transcript.scroll_y == transcript.max_scroll_y

        transcript.take_focus()
        await pilot.press("pageup")
        await until(pilot, lambda: transcript.scroll_y < transcript.max_scroll_y - 5)
        place = transcript.scroll_y
        await stream()
        assert transcript.scroll_y == place

        await pilot.press("end")
        await until(pilot, lambda: transcript.scroll_y == transcript.max_scroll_y)
        await stream()
        assert transcript.scroll_y == transcript.max_scroll_y

        transcript.post_message(MouseScrollUp(transcript, 5, 5, 0, 0, 0, False, False, False))
        await until(pilot, lambda: transcript.scroll_y < transcript.max_scroll_y)
        place = transcript.scroll_y
        await stream()
        assert transcript.scroll_y == place

        app.begin_reply()
        await until(pilot, lambda: transcript.scroll_y == transcript.max_scroll_y > place)


MARKDOWN = "# Sorting\n\nA **fast** `sort` of List<int>:\n\n- one\n- two\n"


async def test_reading_shows_a_finished_reply_as_markdown() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(60, 24)) as pilot:
        words = re.findall(r"\S+|\s+", MARKDOWN)
        reply = await shown_reply(app, pilot, [make_round([], word) for word in words])
        tokens = drawn_rows(reply)
        app.transcript.view = "read"
        await until(pilot, lambda: "fast sort" in "".join(drawn_rows(reply)))
        app.write(reply, [make_round([], word) for word in ("- ", "three", "\n")])
        await until(pilot, lambda: drawn_rows(reply)[-2].strip() == "- three")
        tokens[-1:] = ["  - three", ""]
        app.end(reply, make_end(), "stopped")
        await until(pilot, lambda: "stopped" in drawn_rows(reply)[-1])
        shown = "\n".join(drawn_rows(reply))
        assert "#" not in shown
        assert "**" not in shown
        assert "A fast sort of List<int>:" in shown
        assert segment_of(reply, "fast").style.bold

        await drag(pilot, (reply, 2, 2), (reply, 50, 2))
        assert app.screen.get_selected_text() == "A **fast** `sort` of List<int>:"

        app.transcript.view = "trace"
        assert app.screen.selections == {}
        await until(pilot, lambda: reply.size.height == len(tokens) + 1)
        assert drawn_rows(reply)[:-1] == tokens


async def test_reading_follows_the_width_and_the_theme() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(60, 24)) as pilot:
        app.transcript.view = "read"
        app.add_reply("some **bold words** " * 6)
        [reply] = app.entries()
        await until(pilot, lambda: reply.size.height == 2)
        dark = drawn_segments(reply)[3].style.color
        await pilot.resize_terminal(30, 24)
        await until(pilot, lambda: reply.size.height > 2 and "**" not in "".join(drawn_rows(reply)))
        app.theme = "eagle-light"
        foreground = Color.parse(THEMES["eagle-light"].foreground).rich_color
        await until(
            pilot, lambda: drawn_segments(reply)[3].style.color.triplet == foreground.triplet
        )
        assert dark != foreground


async def test_users_and_notices_are_told_apart_by_their_markers() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, 24)):
        app.add("question", "[b]not markup[/b]\n  indented\ttab")
        app.add("information", "Loading.")
        app.add("warning", "No draft.")
        app.add("error", "It died.")
        app.add_reply("Hello.")
        rows = [row for entry in app.entries() for row in drawn_rows(entry)]
        assert rows == [
            "> [b]not markup[/b]",
            "    indented  tab",
            "i Loading.",
            "! No draft.",
            "x It died.",
            "• Hello.",
        ]


async def test_clear_leaves_nothing() -> None:
    app = TranscriptApp()
    async with app.run_test() as pilot:
        app.add("question", "hello")
        app.add("information", "note")
        await shown_reply(app, pilot, ROUNDS)
        app.transcript.clear()
        await until(pilot, lambda: not any(on_screen(app.transcript)))
        assert app.transcript.rows.tops[-1] == 0


async def test_a_click_on_a_token_amid_others_of_its_ink_chooses_its_own_round() -> None:
    chosen: list[int] = []

    class RoundApp(TranscriptApp):
        def on_transcript_round_chosen(self, event: Transcript.RoundChosen) -> None:
            chosen.append(event.index)

    app = RoundApp()
    async with app.run_test(size=(60, 24)) as pilot:
        app.transcript.view = "live"
        rounds = [replace(make_round([], f"word{n} "), index=n) for n in range(3)]
        app.shown.append(Entry("reply", "reply", recording=Recording(Terms()), turn=1))
        app.transcript.show(app.shown)
        [reply] = app.entries()
        app.write(reply, rounds)
        app.transcript.selected = 1
        await pilot.click(Transcript, offset=reply.at(2 + len("word0 word1 w"), 0))
        await until(pilot, lambda: chosen == [2])

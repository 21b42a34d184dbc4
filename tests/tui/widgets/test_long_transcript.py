"""A long chat is there at once: entries are made when the reader comes near them."""

from __future__ import annotations

from textual.pilot import Pilot

from eaglechat.chat.conversation.entries import Entry
from eaglechat.tui.widgets.transcript.transcript import MADE_AT_ONCE
from tests.tui.widgets.transcript_app import TranscriptApp, on_screen, until

LONG = [Entry(f"entry {n}", "question", f"question {n}") for n in range(500)]


async def shown(app: TranscriptApp, pilot: Pilot[None], entries: list[Entry]) -> None:
    app.transcript.show(entries)
    await until(pilot, lambda: app.transcript.max_scroll_y > 0)
    await until(pilot, lambda: app.transcript.scroll_y == app.transcript.max_scroll_y)


async def test_only_the_end_of_a_long_chat_is_made() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, 12)) as pilot:
        await shown(app, pilot, LONG)
        assert len(app.transcript.children) == MADE_AT_ONCE
        assert "question 499" in on_screen(app.transcript.children[-1])[0]


async def test_what_is_in_sight_stays_there_when_more_is_made_above_it() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, 12)) as pilot:
        await shown(app, pilot, LONG)
        transcript = app.transcript
        first = transcript.children[0]
        for _ in range(100):
            if len(transcript.children) > MADE_AT_ONCE:
                break
            await pilot.press("pageup")
            await until(pilot, lambda: not app.animator.is_being_animated(transcript, "scroll_y"))
        await until(pilot, lambda: not transcript._is_growing)
        assert len(transcript.children) == 2 * MADE_AT_ONCE
        assert transcript.children[MADE_AT_ONCE] is first
        height = transcript.size.height
        await until(pilot, lambda: transcript.scroll_y > height)
        assert abs(first.region.y - transcript.region.y) < 3 * height


async def test_the_beginning_can_be_reached() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, 12)) as pilot:
        await shown(app, pilot, LONG[:150])
        transcript = app.transcript
        for _ in range(10):
            await pilot.press("home")
            await until(pilot, lambda: not app.animator.is_being_animated(transcript, "scroll_y"))
            await until(pilot, lambda: not transcript._is_growing)
        await until(pilot, lambda: len(transcript.children) == 150)
        assert "question 0" in on_screen(transcript.children[0])[0]


async def test_a_high_screen_is_filled() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, 200)) as pilot:
        await shown(app, pilot, LONG)
        assert len(app.transcript.children) == 2 * MADE_AT_ONCE


async def test_what_comes_after_a_long_chat_is_shown_and_the_rest_stays_as_it_is() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, 12)) as pilot:
        await shown(app, pilot, LONG)
        first = app.transcript.children[0]
        app.transcript.show([*LONG, Entry("new", "question", "and now?")])
        await until(pilot, lambda: len(app.transcript.children) == MADE_AT_ONCE + 1)
        assert app.transcript.children[0] is first

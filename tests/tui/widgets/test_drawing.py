"""The scrollbar of the transcript."""

from __future__ import annotations

from tests.tui.widgets.transcript_app import (
    TranscriptApp,
    make_round,
    on_screen,
    shown_reply,
    until,
)

LINE = make_round([" some", " words"], "\n")


async def test_the_scrollbar_comes_and_goes_without_wrapping_anew() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, 12)) as pilot:
        reply = await shown_reply(app, pilot, [LINE] * 30)
        transcript = app.transcript
        await until(pilot, lambda: transcript.scroll_y == transcript.max_scroll_y > 15)
        width = reply.body_width
        assert transcript.vertical_scrollbar.region.width == 0

        await pilot.press("pageup")
        await until(pilot, lambda: transcript.vertical_scrollbar.region.width == 1)
        assert reply.body_width == width
        assert "words" in on_screen(reply)[0]

        await pilot.press("end")
        await until(pilot, lambda: transcript.vertical_scrollbar.region.width == 0)
        assert reply.body_width == width

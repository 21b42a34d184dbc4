"""What a frame of a reply costs: the rows that changed, and one layout for a new row."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widgets import Static

from eaglechat.tui.screens.base import EagleScreen
from tests.tui.textual_private import has_stale_map, rows_drawn_again
from tests.tui.widgets.transcript_app import (
    TranscriptApp,
    make_round,
    on_screen,
    shown_reply,
    until,
)


class Looking(EagleScreen[None]):
    """A line between what scrolls and what shrinks; looked at before each layout."""

    def compose(self) -> ComposeResult:
        with VerticalScroll() as rows:
            rows.styles.height = "1fr"
            yield Static("row\n" * 100)
            yield Static("out of sight", id="unseen")
        yield Static("a line", id="line")
        yield Static("below\n\n", id="below")

    def on_layout(self) -> None:
        assert not self.query_one("#unseen").region.overlaps(self.region)


async def test_what_moved_is_drawn_there_whoever_looked_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app: App[None] = App()
    async with app.run_test(size=(40, 12)) as pilot:
        await app.push_screen(Looking())
        line = app.screen.query_one("#line")
        await until(pilot, lambda: line.region.y == 8)
        app.screen.query_one(VerticalScroll).scroll_to(y=5, animate=False)
        await frames(app, pilot, 2)
        assert has_stale_map(app.screen)

        rows = rows_drawn_again(monkeypatch)
        app.screen.query_one("#below").styles.height = 1
        await until(pilot, lambda: line.region.y == 10)
        await frames(app, pilot, 2)
        assert 10 in rows


LINE = make_round([" some", " words"], "\n")


async def test_a_frame_draws_only_the_row_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    app = TranscriptApp()
    async with app.run_test(size=(60, 24)) as pilot:
        long = [make_round([" word"] * 3, "."), make_round([], "\n")] * 200
        reply = await shown_reply(app, pilot, long)
        await until(pilot, lambda: reply.size.height == 201)
        drawn: list[int] = []
        draw = reply.draw_row
        monkeypatch.setattr(reply, "draw_row", lambda y: (drawn.append(y), draw(y))[1])
        app.write(reply, [make_round([" new"], " words")])
        await until(pilot, lambda: drawn)
        await pilot.pause()
        assert drawn == [200]


async def frames(app: App[None], pilot: Pilot[None], count: int) -> None:
    """Let the screen draw so often: what a layout asked for in turn is done by then."""
    for _ in range(count):
        drawn: list[bool] = []
        app.screen.call_after_refresh(drawn.append, True)
        await until(pilot, lambda drawn=drawn: drawn)


async def test_a_new_row_lays_the_screen_out_once() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, 12)) as pilot:
        reply = await shown_reply(app, pilot, [LINE] * 30)
        await until(pilot, lambda: app.transcript.scroll_y == app.transcript.max_scroll_y > 15)
        heights: list[int] = []
        layouts = app.screen.screen_layout_refresh_signal
        layouts.subscribe(app.transcript, lambda _: heights.append(reply.size.height))
        for height in range(reply.size.height + 1, reply.size.height + 9):
            heights.clear()
            app.write(reply, [LINE])
            await until(pilot, lambda height=height: reply.size.height == height)
            await frames(app, pilot, 2)
            assert heights == [height]
            assert app.transcript.scroll_y == app.transcript.max_scroll_y


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

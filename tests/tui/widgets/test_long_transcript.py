"""Of a long chat only the entries near what is seen are made, and every place is one key away."""

from __future__ import annotations

from itertools import pairwise

import pytest
from textual.pilot import Pilot

from eaglechat.tui.widgets.transcript.formatting import GrowingText, Line
from eaglechat.words.timeline import Entry
from tests.tui.widgets.transcript_app import TranscriptApp, on_screen, until

HEIGHT = 12
LONG = [
    Entry(f"turn {n}", "question", f"question {n}" + "\nand more" * (n % 4), turn=n)
    for n in range(2000)
]


async def opened(app: TranscriptApp, pilot: Pilot[None], entries: list[Entry] = LONG) -> None:
    app.transcript.show(entries)
    await until(pilot, lambda: f"question {entries[-1].turn}" in seen(app))


def seen(app: TranscriptApp) -> str:
    """The screen without its scrollbar."""
    return "\n".join(row.rstrip(" ▁▂▃▄▅▆▇█▔") for row in on_screen(app.transcript))


async def test_only_what_is_near_the_visible_part_is_wrapped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, wrapped = TranscriptApp(), list[int]()

    class Counted(GrowingText):
        def __init__(self, width: int, line: Line | None) -> None:
            wrapped.append(width)
            super().__init__(width, line)

    monkeypatch.setattr("eaglechat.tui.widgets.transcript.entries.GrowingText", Counted)
    async with app.run_test(size=(40, HEIGHT)) as pilot:
        await opened(app, pilot)
        assert len(wrapped) < 4 * HEIGHT


async def test_the_beginning_and_the_end_are_one_key_away() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, HEIGHT)) as pilot:
        await opened(app, pilot)
        await pilot.press("home")
        await until(pilot, lambda: on_screen(app.transcript)[0].endswith("question 0"))
        assert app.transcript.scroll_y == 0
        await pilot.press("end")
        await until(pilot, lambda: "question 1999" in seen(app))


async def test_every_page_shows_what_follows_the_page_before() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, HEIGHT)) as pilot:
        await opened(app, pilot, LONG[:100])
        rows = [row for entry in LONG[:100] for row in (*entry.text.split("\n"), "")]
        top, height = len(rows), app.transcript.size.height

        def is_seen() -> bool:
            page = [row.lstrip("> ") for row in seen(app).split("\n")]
            return page == rows[top : top + height]

        while top:
            top = max(0, top - height)
            await until(pilot, is_seen)
            await pilot.press("pageup")


@pytest.mark.parametrize("turn", [0, 777, 1998])
async def test_any_turn_can_be_revealed_with_a_passage_of_it(turn: int) -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, HEIGHT)) as pilot:
        await opened(app, pilot)
        app.transcript.reveal(turn, (0, len("question")))
        await until(pilot, lambda: f"question {turn}" in seen(app))
        entry = app.entries()[turn]
        marked = [s.text for s in entry.render_line(0) if s.style and s.style.reverse]
        assert marked == ["question"]
        app.transcript.unmark()
        assert not any(s.style and s.style.reverse for s in entry.render_line(0))


async def test_what_is_in_sight_stays_there_whatever_comes_after_it() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, HEIGHT)) as pilot:
        await opened(app, pilot)
        app.transcript.reveal(1000)
        await until(pilot, lambda: "question 1000" in seen(app))
        before = seen(app)
        app.transcript.show([*LONG, Entry("new", "question", "and now?")])
        await pilot.pause()
        assert seen(app) == before
        app.transcript.show(LONG[500:])
        await pilot.pause()
        assert seen(app) == before


async def test_a_high_screen_is_filled() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, 200)) as pilot:
        await opened(app, pilot)
        rows = on_screen(app.transcript)
        # Between two turns a row is empty.
        assert all(any(pair) for pair in pairwise(rows))


async def test_a_new_width_keeps_the_place() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(40, HEIGHT)) as pilot:
        await opened(app, pilot)
        app.transcript.reveal(1000)
        await until(pilot, lambda: "question 1000" in seen(app))
        await pilot.resize_terminal(30, HEIGHT)
        await until(pilot, lambda: app.transcript.size.width == 30)
        await until(pilot, lambda: "question 1000" in seen(app))

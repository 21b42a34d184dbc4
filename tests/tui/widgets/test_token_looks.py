"""How each kind of token looks in the transcript and in the legend, in colour and without."""

from __future__ import annotations

import pytest
from textual.filter import Monochrome
from textual.widgets import Static

from eaglechat.tui.themes import TOKEN_KINDS, legend
from tests.tui.widgets.transcript_app import (
    ROUNDS,
    THEMES,
    TranscriptApp,
    drawn_rows,
    drawn_segments,
    flags,
    make_end,
    make_round,
    segment_of,
    shown_reply,
    token_looks,
    until,
)

SAMPLE = {"accepted": "one two", "correction": " three", "bonus": " six", "plain": " seven"}


@pytest.mark.parametrize("theme", sorted(THEMES))
async def test_each_kind_of_token_has_the_look_the_theme_gives_it(theme: str) -> None:
    app = TranscriptApp()
    async with app.run_test() as pilot:
        app.theme = theme
        await pilot.pause()
        reply = await shown_reply(app, pilot, ROUNDS)
        await until(pilot, lambda: segment_of(reply, " seven").style.color)
        for kind, text in {**SAMPLE, "rejected": " tree"}.items():
            colour, styles = token_looks(THEMES[theme])[kind]
            segments = [segment for segment in drawn_segments(reply) if segment.text.strip()]
            if kind == "rejected":
                segments = [segment for segment in segments if segment.style.strike]
                assert "".join(segment.text for segment in segments) == text.strip()
                style = segments[0].style
            else:
                style = segment_of(reply, text).style
            assert flags(style) == styles
            assert style.color.triplet == colour.rich_color.triplet


async def test_a_rejected_token_without_a_correction_after_it_is_still_shown() -> None:
    ended_by_the_limit = make_round(["a", " b"], "", rejected=" c")
    app = TranscriptApp()
    async with app.run_test() as pilot:
        reply = await shown_reply(app, pilot, [ended_by_the_limit])
        assert drawn_rows(reply) == ["• a b c"]


async def test_live_a_rejected_guess_is_struck_out_behind_the_text_until_the_next_round() -> None:
    app = TranscriptApp("live")
    async with app.run_test() as pilot:
        reply = await shown_reply(app, pilot, ROUNDS[:1])
        assert drawn_rows(reply) == ["• one two three tree"]
        app.write(reply, [ROUNDS[1]])
        assert drawn_rows(reply) == ["• one two three four five six"]
        app.write(reply, [ROUNDS[2], make_round([" eight"], " nine", rejected="mine")])
        assert drawn_rows(reply) == ["• one two three four five six seven eight nine mine"]
        app.end(reply, make_end(), "stopped")
        await until(pilot, lambda: reply.size.height == 2)
        assert drawn_rows(reply)[0] == "• one two three four five six seven eight nine"


@pytest.mark.parametrize("no_colour", [False, True])
async def test_live_has_two_inks_and_read_has_none(
    monkeypatch: pytest.MonkeyPatch, no_colour: bool
) -> None:
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    app = TranscriptApp("live")

    def looks(texts: str) -> set[tuple[object, frozenset[str]]]:
        styles = [segment_of(reply, text).style for text in texts.split()]
        return {(style.color, frozenset(flags(style))) for style in styles}

    async with app.run_test() as pilot:
        reply = await shown_reply(app, pilot, ROUNDS)
        [guessed], [own] = looks("one four five"), looks("three six seven")
        assert guessed[0] != own[0]
        assert (guessed[1], own[1]) == (frozenset({"dim"} if no_colour else ()), frozenset())
        app.transcript.view = "read"
        assert len(looks("one seven")) == 1


async def test_without_colour_the_kinds_still_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = TranscriptApp()
    assert any(isinstance(each, Monochrome) for each in app.get_line_filters())
    async with app.run_test() as pilot:
        reply = await shown_reply(app, pilot, ROUNDS)
        looks = {frozenset(flags(segment_of(reply, text).style)) for text in SAMPLE.values()}
        looks |= {
            frozenset(flags(segment.style))
            for segment in drawn_segments(reply)
            if segment.style.strike
        }
        assert len(looks) == len(TOKEN_KINDS)


async def test_the_legend_shows_every_kind_as_it_looks() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(80, 24)) as pilot:
        line = app.query_one("#legend", Static)
        line.update(legend(app, None, are_rejected_known=True))
        await pilot.pause()
        assert drawn_rows(line) == ["accepted · n-gram · correction · bonus · plain · rejected"]
        for kind in TOKEN_KINDS:
            colour, styles = token_looks(THEMES["eagle-dark"])[kind]
            style = segment_of(line, kind).style
            assert flags(style) == styles
            assert style.color.triplet == colour.rich_color.triplet
        # By who drafted it, an accepted token differs in style alone, which needs no colour.
        looked_up, accepted = (segment_of(line, kind).style for kind in ("n-gram", "accepted"))
        assert looked_up.color == accepted.color
        assert flags(looked_up) != flags(accepted)

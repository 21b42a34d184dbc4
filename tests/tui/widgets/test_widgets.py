"""The panel's drawings, its slider and its rows of words, and the prompt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.content import Content
from textual.style import Style

from eaglechat.chat.headline import Headline
from eaglechat.tui.widgets.panel.drawings import change_marks, chart, speed, speeds_over, why
from eaglechat.tui.widgets.panel.knob import Knob
from eaglechat.tui.widgets.panel.segments import Segments
from eaglechat.tui.widgets.panel.slider import Slider
from eaglechat.tui.widgets.prompt.prompt import Prompt
from eaglechat.wire.gain import MeasuredGain
from eaglechat.wire.records import AutoDraft, AutoReason
from eaglechat.wire.stats import SpeculationStats, stats_of
from eaglechat.wire.stretch import RoundMeans
from eaglechat.words.bars import bar, round_glyph
from tests.chat.records import round_of
from tests.tui.widgets.transcript_app import until


def test_a_bar_is_filled_in_eighths() -> None:
    assert bar(0.5, 4) == "██  "
    assert bar(0.53125, 4) == "██▏ "
    assert bar(2.0, 2) == "██"


def test_a_round_is_drawn_as_high_as_its_draft_was_accepted() -> None:
    whole = replace(round_of(1, 2, 3), n_accepted=2)
    assert [round_glyph(r) for r in (whole, round_of(1), round_of(1, drafted=0))] == ["█", "▁", "·"]


def test_changes_of_n_draft_max_are_marked_under_their_round() -> None:
    rounds = [replace(round_of(1), n_draft_max=n) for n in (3, 3, 5, 5, 5, 5, 0, 0)]
    assert change_marks(rounds, 20) == "  ↑5  ↓0"
    assert change_marks(rounds, 4) == "  ↓0"
    close = [replace(round_of(1), n_draft_max=n) for n in (3, 4, 16, 16)]
    assert change_marks(close, 9) == " ↑↑16"
    assert change_marks(close, 2) == "↑"


def test_what_auto_chooses_is_no_change() -> None:
    auto = AutoDraft(4, AutoReason.BEST, (), 0.0, 0.0, 0.0)
    by_hand, chosen = replace(round_of(1), n_draft_max=3), replace(round_of(1), auto=auto)
    rounds = [by_hand, *(replace(chosen, n_draft_max=n) for n in (0, 4, 4, 2, 4)), by_hand]
    assert change_marks(rounds, 20) == " auto ↓3"


class Bench(App[None]):
    """A slider and a prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[float | str] = []
        self.sent: list[str] = []

    def compose(self) -> ComposeResult:
        yield Slider("n", minimum=0, maximum=16, step=1, value=3, show="{:.0f}".format)
        yield Prompt(id="prompt")

    def on_knob_changed(self, event: Knob.Changed) -> None:
        self.values.append(event.value)

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        self.sent.append(event.text)
        event.prompt.take()


async def test_a_slider_follows_keys_click_drag_and_wheel() -> None:
    app = Bench()
    async with app.run_test(size=(40, 10)) as pilot:
        slider = app.query_one(Slider)
        slider.styles.height = 1
        await pilot.pause()
        slider.focus()
        await pilot.press("right", "up", "left", "end", "right", "home", "left")
        assert app.values == [4, 5, 4, 16, 0]
        track_end = slider.content_size.width - 6
        await pilot.click(Slider, offset=(track_end, 0))
        assert slider.value == 16
        await pilot.mouse_down(Slider, offset=(track_end, 0))
        await pilot.hover(Slider, offset=(9, 0))
        assert slider.value == 0
        await pilot.mouse_up(Slider, offset=(9, 0))
        await pilot.hover(Slider, offset=(track_end, 0))
        assert slider.value == 0


async def test_segments_follow_keys_clicks_the_wheel_and_typed_numbers() -> None:
    app: App[None] = App()
    async with app.run_test(size=(60, 10)) as pilot:
        words = ("auto", *map(str, range(17)))
        row = Segments("n", left_out=words[10:], id="n", tooltip="")
        await app.mount(row)
        row.styles.height = 1
        row.show(words, "3", now="2", usable=16)
        await pilot.pause()
        assert row.render().plain.rstrip() == "n        auto 0 1 <2> [3] 4 5 6 7 8 …"
        row.focus()
        for keys, word in (
            (["right"], "4"), (["home"], "auto"), (["left"], "auto"), (["right", "up"], "1"),
            (["end"], "14"), (["1", "2"], "12"), (["right"], "13"), (["1", "6"], "1"),
        ):  # fmt: skip
            await pilot.press(*keys)
            assert row.chosen == word
        await pilot.click(Segments, offset=(10, 0))
        assert row.chosen == "auto"
        await pilot.click(Segments, offset=(8, 0))
        assert row.chosen == "auto"


async def test_keys_that_come_in_a_burst_keep_their_order() -> None:
    app = Bench()
    async with app.run_test(size=(40, 10)) as pilot:
        app.query_one(Prompt).focus()
        await pilot.pause()
        for key, character in (("a", "a"), ("ctrl+j", None), ("b", "b"), ("enter", "\r")):
            app.post_message(events.Key(key, character))
        await until(pilot, lambda: app.sent == ["a\nb"])


async def test_a_slider_shows_a_value_between_its_steps_and_beyond_its_end() -> None:
    app = Bench()
    async with app.run_test(size=(40, 10)) as pilot:
        slider = app.query_one(Slider)
        for value in (3.5, 20.0):
            slider.value = value
            assert slider.render().plain.endswith(f" {value:.0f}")
        assert app.values == []
        slider.focus()
        await pilot.press("left")
        assert slider.value == 16


@pytest.mark.parametrize("key", ["ctrl+j", "shift+enter", "ctrl+enter", "alt+enter"])
async def test_enter_sends_and_other_enters_begin_a_line(key: str) -> None:
    app = Bench()
    async with app.run_test(size=(40, 10)) as pilot:
        app.query_one(Prompt).focus()
        await pilot.press("a", key, "b", "enter")
        await until(pilot, lambda: app.sent == ["a\nb"])
        assert app.query_one(Prompt).text == ""


async def test_up_and_down_walk_through_what_was_sent_and_back_to_what_was_not() -> None:
    app = Bench()
    async with app.run_test(size=(40, 10)) as pilot:
        prompt = app.query_one(Prompt)
        prompt.focus()
        await pilot.press("a", "enter", "b", "ctrl+j", "c", "enter", "d")
        await pilot.press("up")
        assert prompt.text == "b\nc"
        await pilot.press("up", "up")
        assert prompt.text == "a"
        await pilot.press("down", "down")
        assert prompt.text == "d"


def named(name: str) -> Style:
    """A style that tells its name."""
    return Style(link=name)


def plain(rows: list[Content]) -> list[str]:
    return [row.plain.rstrip() for row in rows]


def test_why_is_the_arithmetic_of_a_round_and_the_share_of_guesses_kept() -> None:
    assert plain(why(None, None, SpeculationStats(), 38, named))[-1] == "nothing drafted yet"
    latest = stats_of([round_of(1, 2, 3), round_of(1, 2, 3), round_of(1, 2), round_of(1)])
    lines = plain(why(RoundMeans(3.21, 31.8, 1.73), 29.4, latest, 38, named))
    assert lines[0] == "draft 3.2 + check 32 ms  = 1.7 tok"
    assert lines[1] == "plain 34 ms              = 1 tok"
    assert lines[2].startswith("kept  71% ")
    assert lines[3] == "1st 75%  2nd 67%"
    assert plain(why(RoundMeans(3.21, 31.8, 1.73), 29.4, latest, 9, named))[3] == "1st 75%"
    assert plain(why(RoundMeans(None, 31.8, 1.73), None, latest, 38, named))[0].startswith(
        "draft + check 32 ms "
    )


def test_the_headline_is_large_only_when_it_is_a_number_and_fits() -> None:
    assert plain(speed(Headline(), 38, named, is_begun=False)) == ["no reply yet", "", ""]
    told = Headline("told", 42.0, MeasuredGain(1.4, 0.1), 30.0, "Q4_0")
    rows = plain(speed(told, 38, named, is_begun=True))
    assert rows[0] == "╶╮    ╷ ╷      plain Q4_0 ±0.1"
    assert [row[15:] for row in rows[1:]] == ["42.0 tok/s", "plain 30.0 tok/s"]
    slower = replace(told, gain=MeasuredGain(0.8, 0.1))
    assert plain(speed(slower, 38, named, is_begun=True))[0].endswith("plain Q4_0 ±0.1, slower")
    first, second, _ = plain(speed(slower, 28, named, is_begun=True))
    assert (first, second) == ("0.8x plain Q4_0, slower", "42.0 tok/s")
    small = {
        "same as plain Q4_0": replace(told, gain=MeasuredGain(1.01, 0.02)),
        "can't tell yet: 0.8x ±0.3": replace(told, gain=MeasuredGain(0.8, 0.3)),
        "measuring plain": Headline("measuring", 42.0),
        "plain not measured": Headline("not measured", 42.0),
        "repeats itself: no verdict": Headline("repeats", 42.0, None, 30.0),
        "plain decoding": Headline("plain", 42.0, None, 42.0),
    }
    for said, headline in small.items():
        assert plain(speed(headline, 28, named, is_begun=True))[:2] == [said, "42.0 tok/s"]
    assert plain(speed(Headline("few"), 28, named, is_begun=True))[0] == "too few rounds yet"


def test_the_chart_has_steps_of_equally_many_rounds() -> None:
    rounds = [round_of(1, 2, ms=10.0)] * 4 + [round_of(1, ms=10.0)] * 7
    assert speeds_over(rounds, 40) == [(200.0, True), (100.0, True)]
    assert speeds_over(rounds, 1) == [(pytest.approx(1000.0 * 15 / 110), True)]
    assert speeds_over(rounds[:3], 40) == []


def test_the_chart_has_no_colour_where_nothing_was_drafted_or_nothing_is_known() -> None:
    drafted, undrafted = [round_of(1, ms=10.0)] * 4, [round_of(1, drafted=0, ms=10.0)] * 4
    slower = Headline("told", 100.0, MeasuredGain(0.7, 0.1), 140.0)

    def colours(headline: Headline) -> list[str]:
        lowest = chart([*drafted, *undrafted], headline, 38, named)[2]
        return [style.link for _, _, style in lowest.spans]

    assert colours(slower) == ["lost", "line"]
    assert colours(replace(slower, gain=MeasuredGain(0.9, 0.3))) == ["line", "line"]
    assert set(colours(Headline("measuring", 100.0))) == {"line"}

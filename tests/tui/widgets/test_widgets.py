"""The panel's meters, the slider and the prompt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual import events
from textual.app import App, ComposeResult

from eaglechat.tui.texts.bars import bar, round_glyph
from eaglechat.tui.widgets.meters import PositionChart, change_marks
from eaglechat.tui.widgets.panel.slider import Slider
from eaglechat.tui.widgets.prompt.prompt import Prompt
from eaglechat.wire.records import AutoDraft, AutoReason
from eaglechat.wire.stats import SpeculationStats
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
        self.values: list[float] = []
        self.sent: list[str] = []

    def compose(self) -> ComposeResult:
        yield Slider("n", minimum=0, maximum=16, step=1, value=3, show="{:.0f}".format)
        yield Prompt(id="prompt")

    def on_slider_changed(self, event: Slider.Changed) -> None:
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
        await pilot.hover(Slider, offset=(13, 0))
        assert slider.value == 0
        await pilot.mouse_up(Slider, offset=(13, 0))
        await pilot.hover(Slider, offset=(track_end, 0))
        assert slider.value == 0


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


async def test_the_chart_says_of_plain_rounds_after_drafts_that_they_are_plain() -> None:
    app: App[None] = App()
    async with app.run_test():
        chart = PositionChart()
        await app.mount(chart)
        assert chart.render().plain == "nothing drafted yet"
        chart.show(SpeculationStats(rounds=64, tokens=64))
        assert chart.render().plain == "no draft in the last 64 rounds"

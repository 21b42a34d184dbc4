"""The panel's drawings, its knobs, and the prompt."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace
from textual import events
from textual.app import App, ComposeResult
from textual.content import Content

from eaglechat.chat.controls import CONTROLS
from eaglechat.tui.themes import MUTED
from eaglechat.tui.widgets.panel.knob import Knob
from eaglechat.tui.widgets.panel.measures import (
    change_marks,
    chart_rows,
    speed_rows,
    speeds_over,
    why_rows,
)
from eaglechat.tui.widgets.prompt.prompt import Prompt
from eaglechat.wire.gain import MeasuredGain
from eaglechat.wire.records import AutoDraft, AutoReason
from eaglechat.wire.stats import SpeculationStats, stats_of
from eaglechat.words.bars import bar, round_glyph
from eaglechat.words.headline import Headline
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
    auto = AutoDraft(4, AutoReason.BEST, (), 0.0, 0.0)
    by_hand, chosen = (
        replace(round_of(1), n_draft_max=3),
        replace(round_of(1), auto=auto),
    )
    rounds = [
        by_hand,
        *(replace(chosen, n_draft_max=n) for n in (0, 4, 4, 2, 4)),
        by_hand,
    ]
    assert change_marks(rounds, 20) == " auto ↓3"


class Bench(App[None]):
    """A knob of each look, and a prompt."""

    CSS = "Knob { height: 1; }"

    def __init__(self) -> None:
        super().__init__()
        self.values: list[str] = []
        self.sent: list[str] = []

    def compose(self) -> ComposeResult:
        yield Knob("n", left_out=LENGTHS[10:], id="words")
        yield Knob("temp", "number", id="number")
        yield Knob("n-grams", "switch", id="switch")
        yield Prompt(
            in_background=lambda *_: None,
            may_be_command=lambda: False,
            choices=lambda _: (),
            n_ctx=lambda: 0,
        )

    def on_knob_changed(self, event: Knob.Changed) -> None:
        assert event.word == event.knob.chosen
        self.values.append(event.word)

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        prompt = self.query_one(Prompt)
        prompt.is_waiting = False
        self.sent.append(event.text)
        prompt.take()


LENGTHS = ("auto", *map(str, range(17)))
TURNS = {
    "words": (
        ("right", "4"), ("home", "auto"), ("left", ""), ("right up", "0 1"), ("end", "14"),
        ("1 2", "1 12"), ("right", "13"), ("1 6", "1"), ("at auto", "auto"), ("at auto", ""),
        ("at n", ""), ("end enter", "14 auto"), ("wheel up", "0"), ("wheel down", "auto"),
    ),
    "number": (
        ("right", "0.75"), ("left left", "0.73 0.70"), ("end", "5.00"), ("right", ""),
        ("home", "0.00"), ("at -", ""), ("at +", "0.05"), ("at -", "0.00"), ("wheel up", "0.05"),
        ("7", ""), ("at temp", ""),
    ),
    "switch": (
        ("space", "on"), ("enter", "off"), ("right", "on"), ("up", ""), ("left", "off"),
        ("at [", "on"), ("at grams", "off"), ("wheel up", "on"), ("wheel up", ""),
    ),
}  # fmt: skip
"""By the look of a knob: what its user does, and the words that it then takes."""


@pytest.mark.parametrize("look", TURNS)
async def test_a_knob_follows_keys_clicks_the_wheel_and_typed_numbers(look: str) -> None:
    app = Bench()
    async with app.run_test(size=(60, 12)) as pilot:
        knob = app.query_one(f"#{look}", Knob)
        if look == "words":
            knob.show(LENGTHS, "3", now="2", usable=16)
            assert knob.render().plain.rstrip() == "n        auto 0 1 <2> [3] 4 5 6 7 8 …"
        elif look == "number":
            knob.show(CONTROLS["temperature"].steps(0.73), "0.73", note="model's")
            assert knob.render().plain == "temp     - [0.73] +  model's"
        else:
            assert knob.render().plain == "[ ] n-grams"
        knob.focus()
        await pilot.pause()
        for does, words in TURNS[look]:
            app.values.clear()
            where, _, what = does.partition(" ")
            if where == "at":
                await pilot.click(knob, offset=(knob.render().plain.index(what), 0))
            elif where == "wheel":
                kind = events.MouseScrollUp if what == "up" else events.MouseScrollDown
                knob.post_message(kind(knob, 0, 0, 0, 0, 0, shift=False, meta=False, ctrl=False))
            else:
                await pilot.press(*does.split())
            await pilot.pause()
            assert app.values == words.split(), does


def test_a_number_has_its_steps_and_the_value_between_them_or_beyond_their_end() -> None:
    assert len(CONTROLS["temperature"].steps(1.0)) == 101
    assert CONTROLS["temperature"].steps(0.731)[14:17] == ("0.70", "0.73", "0.75")
    assert CONTROLS["temperature"].steps(20.0)[-2:] == ("5.00", "20.00")
    assert CONTROLS["temperature"].steps(0.7001).count("0.70") == 1


@pytest.mark.parametrize("key", ["ctrl+j", "shift+enter", "ctrl+enter", "alt+enter"])
async def test_enter_sends_and_other_enters_begin_a_line(key: str) -> None:
    app = Bench()
    async with app.run_test(size=(40, 10)) as pilot:
        app.query_one(Prompt).focus()
        await pilot.press("a", key, "b", "enter")
        await until(pilot, lambda: app.sent == ["a\nb"])
        assert app.query_one(Prompt).text == ""


async def test_up_and_down_walk_through_what_was_sent_and_lose_nothing_on_the_way() -> None:
    app = Bench()
    async with app.run_test(size=(40, 10)) as pilot:
        prompt = app.query_one(Prompt)
        prompt.focus()

        async def walks(*steps: str) -> None:
            """Keys, each with the text that it leads to."""
            for step in steps:
                key, _, text = step.partition(" ")
                await pilot.press(key)
                assert prompt.text == text.replace("/", "\n"), step

        await pilot.press(*"first", "enter", *"2nd", "ctrl+j", "x", "enter", *"draft")
        await walks("up 2nd/x", "y 2nd/xy", "up 2nd/xy", "up first", "up first")
        await walks("down 2nd/xy", "down draft", "up 2nd/xy")
        prompt.take()
        await walks("up 2nd/xy", "up 2nd/xy", "up draft", "up 2nd/x")


def plain(rows: list[Content]) -> list[str]:
    return [row.plain.rstrip() for row in rows]


def test_why_is_the_arithmetic_of_a_round_and_the_share_of_guesses_kept() -> None:
    assert plain(why_rows(None, None, SpeculationStats(), 38))[-1] == "nothing drafted yet"
    latest = stats_of([round_of(1, 2, 3), round_of(1, 2, 3), round_of(1, 2), round_of(1)])
    lines = plain(why_rows((3.21, 31.8, 1.73), 29.4, latest, 38))
    assert lines[0] == "draft 3.2 + check 32 ms  = 1.7 tok"
    assert lines[1] == "plain 34 ms              = 1 tok"
    assert lines[2].startswith("kept  71% ")
    assert lines[3] == "1st 75%  2nd 67%"
    assert plain(why_rows((3.21, 31.8, 1.73), 29.4, latest, 9))[3] == "1st 75%"
    assert plain(why_rows((None, 31.8, 1.73), None, latest, 38))[0].startswith(
        "draft + check 32 ms "
    )


def test_the_headline_is_large_only_when_it_is_a_number_and_fits() -> None:
    assert plain(speed_rows(Headline(), 38, is_begun=False)) == ["no reply yet", "", ""]
    told = Headline("told", 42.0, MeasuredGain(1.4, 0.1), 30.0, "Q4_0")
    rows = plain(speed_rows(told, 38, is_begun=True))
    assert rows[0] == "╶╮    ╷ ╷      plain Q4_0 ±0.1"
    assert [row[15:] for row in rows[1:]] == ["42.0 tok/s", "plain 30.0 tok/s"]
    slower = dataclasses.replace(told, gain=MeasuredGain(0.8, 0.1))
    assert plain(speed_rows(slower, 38, is_begun=True))[0].endswith("plain Q4_0 ±0.1, slower")
    first, second, _ = plain(speed_rows(slower, 28, is_begun=True))
    assert (first, second) == ("0.8x plain Q4_0, slower", "42.0 tok/s")
    small = {
        "same as plain Q4_0": dataclasses.replace(told, gain=MeasuredGain(1.01, 0.02)),
        "can't tell yet: 0.8x ±0.3": dataclasses.replace(told, gain=MeasuredGain(0.8, 0.3)),
        "measuring plain": Headline("measuring", 42.0),
        "plain not measured": Headline("not measured", 42.0),
        "repeats itself: no verdict": Headline("repeats", 42.0, None, 30.0),
        "plain decoding": Headline("plain", 42.0, None, 42.0),
    }
    for said, headline in small.items():
        assert plain(speed_rows(headline, 28, is_begun=True))[:2] == [said, "42.0 tok/s"]
    assert plain(speed_rows(Headline("few"), 28, is_begun=True))[0] == "too few rounds yet"


def test_the_chart_has_steps_of_equally_many_rounds() -> None:
    rounds = [round_of(1, 2, ms=10.0)] * 4 + [round_of(1, ms=10.0)] * 7
    assert speeds_over(rounds, 40) == [(200.0, True), (100.0, True)]
    assert speeds_over(rounds, 1) == [(pytest.approx(1000.0 * 15 / 110), True)]
    assert speeds_over(rounds[:3], 40) == []


def test_the_chart_has_no_colour_where_nothing_was_drafted_or_nothing_is_known() -> None:
    drafted, undrafted = [round_of(1, ms=10.0)] * 4, [round_of(1, drafted=0, ms=10.0)] * 4
    slower = Headline("told", 100.0, MeasuredGain(0.7, 0.1), 140.0)

    def colours(headline: Headline) -> list[str]:
        lowest = chart_rows([*drafted, *undrafted], headline, 38)[2]
        return [str(style) for _, _, style in lowest.spans]

    assert colours(slower) == ["$text-warning", MUTED]
    assert colours(dataclasses.replace(slower, gain=MeasuredGain(0.9, 0.3))) == [MUTED, MUTED]
    assert set(colours(Headline("measuring", 100.0))) == {MUTED}

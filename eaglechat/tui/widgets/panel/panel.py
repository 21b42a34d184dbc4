"""The speculation panel: what the loop does, and the controls that turn it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Checkbox, Static

from eaglechat.chat.controls import (
    CONTROLS,
    DRAFTER,
    LATER_CONTROLS,
    ChoiceControl,
    Control,
    Controls,
    RangeControl,
    control_named,
    recommended_for,
)
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.texts import wording
from eaglechat.tui.texts.numbers import Numbers
from eaglechat.tui.texts.statistics import (
    ACCEPTANCE_RATE,
    PER_POSITION,
    STATISTICS,
    of_whole_reply,
)
from eaglechat.tui.widgets.meters import Bar, PositionChart, RoundStrip
from eaglechat.tui.widgets.panel.auto_view import AutoView
from eaglechat.tui.widgets.panel.parts_view import PartsView
from eaglechat.tui.widgets.panel.slider import Slider
from eaglechat.tui.widgets.panel.tick import Tick
from eaglechat.tui.widgets.readouts import Line, Reading
from eaglechat.wire.protocol import AUTO, Auto
from eaglechat.wire.stats import SpeculationStats

_ROUNDS = "Rounds (height: share accepted)"
_LABELS = {
    "enabled": "Speculation ({chat.speculation})",
    "n_draft_max": "n_draft_max",
    "p_min": "p_min",
    "ngram": "n-grams ({chat.ngram})",
    "shape": "Shape",
    "temperature": "Temperature",
    "thinking": "Thinking",
    "effort": "Effort",
    "drafter": "Drafter",
}
_ONE_DRAFTER = 4
"""Choices of a pair with one drafter: auto, itself, n-grams alone and none."""
_LATER = "Applies from the next reply on."
_HINTS = {
    "n_draft_max": "{chat.less} less, {chat.more} more. A at the left end ({chat.auto}) is auto.",
    "thinking": _LATER,
    "effort": _LATER,
    "drafter": _LATER,
}
"""Follows the description of a control's setting."""


class SpeculationPanel(VerticalScroll, can_focus=False):
    """Shows Numbers, and posts Turned when the user turns a control."""

    @dataclass
    class Turned(Message):
        """The user turned a control to this value."""

        turned: Control
        value: bool | float | str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._controls: Controls | None = None
        self._drafters: tuple[str, ...] = (AUTO,)
        """The choices of the drafter that the pair has."""

    def compose(self) -> ComposeResult:
        with Vertical(id="measures", classes="group"):
            yield Line("Speculation", classes="heading", id="panel-heading")
            yield Line("", id="off-reason")
            yield from _readings()
            yield PartsView(
                id="parts",
                tooltip="The same of this reply's reasoning and of its answer. A round counts "
                "towards the part in which it began.",
            )
            yield AutoView(
                id="auto",
                tooltip="n_draft_max = auto: the draft length of this round and why, the tokens "
                "per second expected of each length (0 is plain decoding), the measured speed of "
                "plain decoding (± two standard errors), and how far this reply is behind "
                "plain decoding, and may be.",
            )
            yield Static("Acceptance by draft position", classes="label above", id="positions-name")
            yield PositionChart(id="positions")
            yield Reading(PER_POSITION.label, id="positions-line", tooltip=PER_POSITION.meaning)
        with Vertical(id="rounds-and-controls", classes="group"):
            yield Line(_ROUNDS, classes="label above", id="strip-name")
            yield RoundStrip(id="strip")
            yield Reading(
                "Draft / verify",
                id="times",
                tooltip="Milliseconds in a round for drafting, and for the target's pass that "
                "verifies the draft. Means of the latest 64 rounds.",
            )
            yield Reading(
                "Prefill",
                id="prefill",
                tooltip="Prompt tokens the target had to read, those cached from earlier turns "
                "(KV cache), and how long reading took.",
            )
            yield Reading(
                "Context",
                id="context",
                tooltip="Tokens in the target's KV cache, and its size.",
            )
            yield Bar(id="context-bar")
            yield Static("Controls", classes="heading")
            yield from self._knobs()
            yield Line("", classes="label", id="own-sampling")
            yield Static("Thinking: the template has no switch", classes="label", id="no-switch")

    def _knobs(self) -> Iterator[Widget]:
        for control in (*CONTROLS, *LATER_CONTROLS):
            label = with_keys(_LABELS[control.name])
            tooltip = with_keys(f"{control.explanation} {_HINTS.get(control.name, '')}".rstrip())
            if isinstance(control, RangeControl):
                yield Slider(
                    label,
                    minimum=control.minimum,
                    maximum=control.maximum,
                    step=control.step,
                    value=control.minimum,
                    show=control.show,
                    auto=control.has_auto,
                    id=control.name,
                    tooltip=tooltip,
                )
            elif isinstance(control, ChoiceControl):
                yield Slider(
                    label,
                    minimum=0,
                    maximum=len(control.words) - 1,
                    step=1,
                    value=0,
                    show=partial(self._word, control),
                    value_width=7,
                    id=control.name,
                    tooltip=tooltip,
                )
            else:
                yield Tick(label, False, id=control.name, tooltip=tooltip)

    def show(self, numbers: Numbers) -> None:
        """Bring every reading up to date."""
        self._show_controls(numbers.controls, numbers.drafters)
        for control in CONTROLS:
            has_effect = control.name not in numbers.without_effect
            self.query_one(f"#{control.name}").display = has_effect
            if isinstance(control, RangeControl):
                own = recommended_for(control, numbers.recommended)
                self.query_one(f"#{control.name}", Slider).own = own
        self.query_one("#own-sampling", Line).show(numbers.own_sampling)
        self.set_class(bool(numbers.own_sampling), "-recommended")
        self.query_one("#parts", PartsView).show(numbers.by_part)
        self.set_class(bool(numbers.by_part), "-parts")
        self.query_one("#thinking").display = numbers.reasoning.on_off
        self.query_one("#effort").display = bool(numbers.reasoning.efforts)
        no_switch = numbers.reasoning.marked and not numbers.reasoning.on_off
        self.query_one("#no-switch").display = no_switch and not numbers.reasoning.efforts
        measured = numbers.measured
        heading, why = _heading(numbers)
        self.query_one("#panel-heading", Line).show(heading)
        self.query_one("#off-reason", Line).show(why)
        self.query_one("#off-reason").display = bool(why)
        self.set_class(numbers.unreported is not None, "-unreported")
        is_auto = numbers.controls.n_draft_max == AUTO and numbers.drafts_as_asked
        self.set_class(is_auto and not numbers.off, "-auto")
        self.query_one("#auto", AutoView).show(numbers.auto)
        for one in _IN_PANEL:
            reading = self.query_one(f"#{one.name}", Reading)
            reading.show(one.shown(measured))
            reading.display = not (numbers.unreported and one.table == "speculation")
        self.query_one("#acceptance-bar", Bar).show(ACCEPTANCE_RATE.value(measured))
        of_reply = replace(measured, stats=numbers.reply)
        reply = numbers.reply
        counts = f" ({reply.accepted:,} of {reply.tested:,})" if reply.tested else ""
        self._reading("reply-acceptance", ACCEPTANCE_RATE.shown(of_reply) + counts)
        self.query_one("#positions", PositionChart).show(measured.stats or SpeculationStats())
        self._reading("positions-line", PER_POSITION.shown(measured))
        self.query_one("#strip", RoundStrip).show(numbers.rounds)
        latest = wording.latest_draft(numbers.rounds[-1] if numbers.rounds else None)
        self.query_one("#strip-name", Line).show(f"Rounds: {latest}" if latest else _ROUNDS)
        self._reading("times", numbers.times)
        self._reading("prefill", numbers.prefill)
        self._reading("context", numbers.room)
        self.query_one("#context-bar", Bar).show(numbers.n_past / (numbers.n_ctx or 1))

    def _show_controls(self, controls: Controls, drafters: tuple[str, ...]) -> None:
        """Move the controls without posting anything."""
        if (controls, drafters) == (self._controls, self._drafters):
            return
        self._controls, self._drafters = controls, drafters
        self.query_one("#drafter", Slider).maximum = len(drafters) - 1
        self.query_one("#drafter").display = len(drafters) > _ONE_DRAFTER
        with self.prevent(Checkbox.Changed, Slider.Changed):
            for control in (*CONTROLS, *LATER_CONTROLS):
                value = getattr(controls, control.name)
                if isinstance(control, RangeControl):
                    self.query_one(f"#{control.name}", Slider).value = _position(value)
                elif isinstance(control, ChoiceControl):
                    self.query_one(f"#{control.name}", Slider).value = self._words(control).index(
                        value
                    )
                else:
                    self.query_one(f"#{control.name}", Tick).value = value

    @on(Checkbox.Changed)
    def _ticked(self, event: Checkbox.Changed) -> None:
        event.stop()
        self._turned(event.checkbox, event.value)

    @on(Slider.Changed)
    def _slid(self, event: Slider.Changed) -> None:
        event.stop()
        self._turned(event.slider, AUTO if event.value is None else event.value)

    def _turned(self, knob: Widget, value: bool | float | Auto) -> None:
        control = control_named(knob.id or "")
        word = self._word(control, float(value)) if isinstance(control, ChoiceControl) else value
        self.post_message(self.Turned(control, word))

    def _words(self, control: ChoiceControl) -> tuple[str, ...]:
        return self._drafters if control is DRAFTER else control.words

    def _word(self, control: ChoiceControl, position: float) -> str:
        return self._words(control)[round(position)]

    def _reading(self, id: str, value: str) -> None:
        self.query_one(f"#{id}", Reading).show(value)


_IN_PANEL = [one for one in STATISTICS if one.in_panel]


def _readings() -> Iterator[Widget]:
    """A line for each statistic; acceptance has a bar too, and the same for the reply on show."""
    for one in _IN_PANEL:
        reading = Reading(one.label, id=one.name, tooltip=one.meaning)
        reading.add_class("statistic")
        yield reading
        if one is ACCEPTANCE_RATE:
            yield Bar(id="acceptance-bar")
            yield Reading(
                "of this reply",
                id="reply-acceptance",
                tooltip="The same over the whole reply shown.",
            )


def _heading(numbers: Numbers) -> tuple[str, str]:
    """Whether there is speculation, in which engine, and what there is to say of that."""
    drafts = "Only n-grams draft" if numbers.only_ngrams else "Speculation on"
    on = " · ".join(filter(None, (drafts, numbers.engine)))
    if numbers.off:
        return "Speculation off", f"Off: {numbers.off}."
    if numbers.unreported:
        known = numbers.unreported
        if numbers.reply.is_of_whole_reply:
            known = f"this reply: {of_whole_reply(numbers.reply)}; more is {known}"
        return "Speculation", wording.sentence(known)
    if numbers.is_provisional:
        return on, "Provisional until the reply has ended"
    return on, ""


def _position(value: float | Auto) -> float | None:
    """Where a slider stands; None is its position for auto."""
    return None if value == AUTO else value

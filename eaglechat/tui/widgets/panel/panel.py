"""The speculation panel: whether drafting is faster, why, and the controls that turn it."""

from __future__ import annotations

from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Checkbox, Static

from eaglechat.chat.controls import (
    CONTROLS,
    DRAFTER,
    EFFORT,
    ENABLED,
    N_DRAFT_MAX,
    NGRAM,
    P_MIN,
    SHAPE,
    TEMPERATURE,
    THINKING,
    Control,
    Controls,
    RangeControl,
    control_named,
    recommended_for,
)
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.widgets.panel.knob import Knob
from eaglechat.tui.widgets.panel.measures import Measures
from eaglechat.tui.widgets.panel.segments import Segments
from eaglechat.tui.widgets.panel.slider import Slider
from eaglechat.tui.widgets.panel.tick import Tick
from eaglechat.tui.widgets.readouts import Reading
from eaglechat.wire.protocol import AUTO
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT
from eaglechat.words import wording
from eaglechat.words.numbers import Numbers
from eaglechat.words.turned import label

_LENGTHS = (AUTO, *map(str, range(N_DRAFT_MAX_LIMIT + 1)))
_RARE_LENGTHS = ("7", *map(str, range(9, N_DRAFT_MAX_LIMIT + 1)))
_ONE_DRAFTER = 4
"""Choices of a pair with one drafter: auto, itself, n-grams alone and none."""
_LATER = "Applies from the next reply on."
_HINTS = {
    "enabled": "{chat.speculation} switches it.",
    "ngram": "{chat.ngram} switches them.",
    "n_draft_max": "{chat.less} less, {chat.more} more, {chat.auto}: auto. Type a number for one "
    "that is not shown. < > is what auto chose; what is dim is more than the draft can do.",
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

    def compose(self) -> ComposeResult:
        yield Measures(id="measures", classes="group")
        with Vertical(id="controls", classes="group"):
            yield Static("CONTROL", classes="heading")
            yield self._row(DRAFTER)
            yield self._row(N_DRAFT_MAX)
            with Horizontal(id="switches"):
                yield from (self._tick(control) for control in (ENABLED, NGRAM))
            yield self._slider(TEMPERATURE)
            yield from (self._row(control) for control in (THINKING, EFFORT))
            yield Static("thinking: the template has no switch", classes="label", id="no-switch")
            yield Tick("more", False, id="more", tooltip="Shape and p_min: seldom turned.")
            yield self._row(SHAPE)
            yield self._slider(P_MIN)
            yield Reading(
                "ctx",
                id="context",
                tooltip=with_keys(
                    "Tokens in the target's KV cache, and its size. {chat.context} says more."
                ),
            )

    def _row(self, control: Control) -> Segments:
        return Segments(
            label(control),
            names=wording.DRAFTERS,
            left_out=_RARE_LENGTHS,
            id=control.name,
            tooltip=_tooltip(control),
        )

    def _tick(self, control: Control) -> Tick:
        return Tick(label(control), False, id=control.name, tooltip=_tooltip(control))

    def _slider(self, control: RangeControl) -> Slider:
        return Slider(
            label(control),
            minimum=control.minimum,
            maximum=control.maximum,
            step=control.step,
            value=control.minimum,
            show=control.show,
            id=control.name,
            tooltip=_tooltip(control),
        )

    def has_in_sight(self, control: Control) -> bool:
        """Whether it shows what this control is."""
        return self.display and self.query_one(f"#{control.name}").display

    def show(self, numbers: Numbers) -> None:
        """Bring every reading up to date."""
        self._show_controls(numbers)
        is_low = self.screen.has_class("-folded")
        self.query_one(Measures).show(numbers, is_close=is_low)
        self.query_one("#context", Reading).show(numbers.room)

    def _show_controls(self, numbers: Numbers) -> None:
        """Move the controls without posting anything."""
        controls = numbers.controls
        length = str(controls.n_draft_max)
        auto = numbers.auto
        now = str(auto.length) if auto is not None and auto.length is not None else ""
        usable = _LENGTHS.index(str(numbers.longest)) + 1
        self.query_one("#n_draft_max", Segments).show(_LENGTHS, length, now=now, usable=usable)
        self.query_one("#drafter", Segments).show(numbers.drafters, controls.drafter)
        for choice in (SHAPE, THINKING, EFFORT):
            self.query_one(f"#{choice.name}", Segments).show(
                choice.words, getattr(controls, choice.name)
            )
        if controls != self._controls:
            self._controls = controls
            with self.prevent(Checkbox.Changed):
                for tick in (ENABLED, NGRAM):
                    self.query_one(f"#{tick.name}", Tick).value = getattr(controls, tick.name)
                for slider in (TEMPERATURE, P_MIN):
                    self.query_one(f"#{slider.name}", Slider).value = getattr(controls, slider.name)
        is_more = self.query_one("#more", Tick).value
        hidden = {*numbers.without_effect, *(() if is_more else (SHAPE.name, P_MIN.name))}
        for control in (*CONTROLS, THINKING, EFFORT):
            self.query_one(f"#{control.name}").display = control.name not in hidden
        self.query_one("#more").display = not {SHAPE.name, P_MIN.name} <= numbers.without_effect
        own = recommended_for(TEMPERATURE, numbers.recommended)
        self.query_one("#temperature", Slider).own = own
        self.query_one("#drafter").display = len(numbers.drafters) > _ONE_DRAFTER
        no_switch = numbers.reasoning.marked and not numbers.reasoning.on_off
        self.query_one("#no-switch").display = no_switch and not numbers.reasoning.efforts

    @on(Checkbox.Changed)
    def _ticked(self, event: Checkbox.Changed) -> None:
        event.stop()
        if event.checkbox.id == "more":
            for control in (SHAPE, P_MIN):
                self.query_one(f"#{control.name}").display = event.value
        else:
            self._turned(event.checkbox, event.value)

    @on(Knob.Changed)
    def _knob_changed(self, event: Knob.Changed) -> None:
        event.stop()
        value = event.value
        is_number = isinstance(value, str) and value.isdecimal()
        self._turned(event.knob, int(value) if is_number else value)

    def _turned(self, knob: Widget, value: bool | float | str) -> None:
        self.post_message(self.Turned(control_named(knob.id or ""), value))


def _tooltip(control: Control) -> str:
    return with_keys(f"{control.explanation} {_HINTS.get(control.name, '')}".rstrip())

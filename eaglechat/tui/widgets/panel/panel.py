"""The speculation panel: whether drafting is faster, why, and the controls that turn it."""

from __future__ import annotations

from collections.abc import Iterator

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

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
)
from eaglechat.chat.session import ChatSession
from eaglechat.tui.commands.keys import with_keys
from eaglechat.tui.widgets.panel.knob import LABEL_CELLS, OFF_AND_ON, Knob, Look
from eaglechat.tui.widgets.panel.measures import HEADING, Measures
from eaglechat.wire.protocol import AUTO
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT
from eaglechat.words import numbers

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
    """Shows a session. Each control has a knob, with its name as the id."""

    def __init__(self, session: ChatSession) -> None:
        super().__init__(id="panel")
        self._session = session

    def compose(self) -> ComposeResult:
        yield Measures(self._session)
        with Vertical(id="controls", classes="group"):
            yield Static(Content.styled("CONTROL", HEADING))
            yield from _knobs(DRAFTER, N_DRAFT_MAX)
            with Horizontal(id="switches"):
                yield from _knobs(ENABLED, NGRAM, look="switch")
            yield from _knobs(TEMPERATURE, look="number")
            yield from _knobs(THINKING, EFFORT)
            more = Knob("more", "switch", id="more")
            more.tooltip = "Shape and p_min: seldom turned."
            yield more
            yield from _knobs(SHAPE)
            yield from _knobs(P_MIN, look="number")
            context = Static(id="context", classes="muted", markup=False)
            context.tooltip = with_keys(
                "Tokens in the target's KV cache, and its size. {chat.context} says more."
            )
            yield context

    def knob(self, control: Control) -> Knob:
        return self.query_one(f"#{control.name}", Knob)

    def show(self) -> None:
        """Bring every reading up to date."""
        self._show_controls()
        self.query_one(Measures).show()
        room = f"{'ctx':{LABEL_CELLS}}{numbers.room(self._session)}"
        self.query_one("#context", Static).update(room, layout=False)

    def _show_controls(self) -> None:
        """Turn the knobs without posting anything."""
        session = self._session
        controls, auto = session.controls, numbers.auto(session)
        for control in (ENABLED, NGRAM):
            self.knob(control).show(OFF_AND_ON, control.word(getattr(controls, control.name)))
        for choice in (SHAPE, THINKING, EFFORT):
            self.knob(choice).show(choice.words, getattr(controls, choice.name))
        for number in (TEMPERATURE, P_MIN):
            value = getattr(controls, number.name)
            is_own = value == session.recommended.get(number.name)
            note = "model's" if is_own else ""
            self.knob(number).show(number.steps(value), number.word(value), note=note)
        drafters = numbers.drafters(session)
        self.knob(DRAFTER).show(drafters, controls.drafter)
        now = str(auto.length) if auto is not None and auto.length is not None else ""
        length, usable = N_DRAFT_MAX.word(controls.n_draft_max), numbers.longest(session) + 2
        self.knob(N_DRAFT_MAX).show(_LENGTHS, length, now=now, usable=usable)

        rare = {SHAPE.name, P_MIN.name}
        is_more = self.query_one("#more", Knob).chosen == OFF_AND_ON[1]
        without_effect = numbers.without_effect(session)
        hidden = {*without_effect, *(() if is_more else rare)}
        for control in (*CONTROLS, THINKING, EFFORT):
            self.knob(control).display = control.name not in hidden
        self.query_one("#more").display = not rare <= without_effect.keys()
        self.knob(DRAFTER).display = len(drafters) > _ONE_DRAFTER

    def on_knob_changed(self, event: Knob.Changed) -> None:
        if event.knob.id == "more":
            event.stop()
            self._show_controls()


def _knobs(*controls: Control, look: Look = "words") -> Iterator[Knob]:
    for control in controls:
        knob = Knob(numbers.label(control), look, left_out=_RARE_LENGTHS, id=control.name)
        hint = with_keys(_HINTS.get(control.name, ""))
        knob.tooltip = f"{control.doc.description} {hint}".rstrip()
        yield knob

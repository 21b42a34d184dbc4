"""The speculation panel: whether drafting is faster, why, and the controls that turn it."""

from __future__ import annotations

from collections.abc import Iterator

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from eaglechat.chat.controls import CONTROLS
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
            yield from _knobs("drafter", "n_draft_max")
            with Horizontal(id="switches"):
                yield from _knobs("enabled", "ngram", look="switch")
            yield from _knobs("temperature", look="number")
            yield from _knobs("thinking", "effort")
            more = Knob("more", "switch", id="more")
            more.tooltip = "Shape and p_min: seldom turned."
            yield more
            yield from _knobs("shape")
            yield from _knobs("p_min", look="number")
            context = Static(id="context", classes="muted", markup=False)
            context.tooltip = with_keys(
                "Tokens in the target's KV cache, and its size. {chat.context} says more."
            )
            yield context

    def knob(self, name: str) -> Knob:
        return self.query_one(f"#{name}", Knob)

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
        for name in ("enabled", "ngram"):
            self.knob(name).show(OFF_AND_ON, CONTROLS[name].word(getattr(controls, name)))
        for name in ("shape", "thinking", "effort"):
            self.knob(name).show(CONTROLS[name].words, getattr(controls, name))
        for name in ("temperature", "p_min"):
            value, number = getattr(controls, name), CONTROLS[name]
            note = "model's" if value == session.recommended.get(name) else ""
            self.knob(name).show(number.steps(value), number.word(value), note=note)
        drafters = numbers.drafters(session)
        self.knob("drafter").show(drafters, controls.drafter)
        now = str(auto.length) if auto is not None and auto.length is not None else ""
        length, usable = str(controls.n_draft_max), numbers.longest(session) + 2
        self.knob("n_draft_max").show(_LENGTHS, length, now=now, usable=usable)

        rare = {"shape", "p_min"}
        is_more = self.query_one("#more", Knob).chosen == OFF_AND_ON[1]
        without_effect = numbers.without_effect(session)
        hidden = {*without_effect, *(() if is_more else rare)}
        hidden |= {"drafter"} if len(drafters) <= _ONE_DRAFTER else set()
        for name in CONTROLS:
            self.knob(name).display = name not in hidden
        self.query_one("#more").display = not rare <= without_effect.keys()

    def on_knob_changed(self, event: Knob.Changed) -> None:
        if event.knob.id == "more":
            event.stop()
            self._show_controls()


def _knobs(*names: str, look: Look = "words") -> Iterator[Knob]:
    for name in names:
        knob = Knob(numbers.label(name), look, left_out=_RARE_LENGTHS, id=name)
        hint = with_keys(_HINTS.get(name, ""))
        knob.tooltip = f"{CONTROLS[name].doc.description} {hint}".rstrip()
        yield knob

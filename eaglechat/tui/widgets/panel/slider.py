"""A slider: a value in a range, set by keys, click, drag and wheel."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.content import Content
from textual.reactive import reactive

from eaglechat.tui.widgets.panel.knob import Knob

_OWN = " model's"
_NARROWEST_TRACK = 3
_VALUE_CELLS = 5


class Slider(Knob):
    """`label  ━━━●────  value` on one line.

    The user moves it in whole `step`s between `minimum` and `maximum`; a value set by the program
    is shown as it is, even outside of them.
    """

    COMPONENT_CLASSES = {"slider--filled", "slider--track", "slider--value", "slider--own"}

    value: reactive[float] = reactive(0.0, init=False)
    own: reactive[float | None] = reactive(None, init=False)
    """The value that the model's maker recommends, said where it is the one in force."""

    def __init__(
        self,
        label: str,
        *,
        minimum: float,
        maximum: float,
        step: float,
        value: float,
        show: Callable[[float], str],
        id: str | None = None,
        tooltip: str = "",
    ) -> None:
        """`show` writes a value, for instance `"{:.2f}".format`."""
        super().__init__(label, id=id, tooltip=tooltip)
        self._show = show
        self.minimum, self.maximum, self.step = minimum, maximum, step
        self.set_reactive(Slider.value, value)

    def render(self) -> Content:
        width = self._track_width
        if width < _NARROWEST_TRACK:
            return self._without_track()
        filled = self.get_visual_style("slider--filled")
        track = self.get_visual_style("slider--track")
        label = self.get_visual_style("knob--label")
        share = (self.value - self.minimum) / (self.maximum - self.minimum)
        cells = round(min(max(share, 0.0), 1.0) * (width - 1))
        knob, shown = "━" * cells + "●", self._show(self.value)
        return Content.assemble(
            (self._label, label),
            (knob, filled),
            ("─" * (width - len(knob)), track),
            (shown.rjust(_VALUE_CELLS), self.get_visual_style("slider--value")),
            (self._said_of_own, self.get_visual_style("slider--own")),
        )

    @property
    def _said_of_own(self) -> str:
        """As long whether it is said or not, so that the track stays under the pointer."""
        if self.own is None:
            return ""
        return _OWN if self.value == self.own else " " * len(_OWN)

    def _without_track(self) -> Content:
        shown = self._show(self.value)
        label = self._label.strip()[: max(0, self.content_size.width - len(shown) - 1)]
        return Content.assemble(
            (label, self.get_visual_style("knob--label")),
            " " * (self.content_size.width - len(label) - len(shown)),
            (shown, self.get_visual_style("slider--value")),
        )

    def action_step(self, steps: int) -> None:
        self._set(self.value + steps * self.step)

    def action_end(self, side: int) -> None:
        self._set(self.maximum if side > 0 else self.minimum)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self.capture_mouse()
        self._set_from_column(event.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self.app.mouse_captured is self:
            self._set_from_column(event.x)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self.release_mouse()

    @property
    def _track_width(self) -> int:
        said = len(self._said_of_own)
        return self.content_size.width - len(self._label) - _VALUE_CELLS - said

    def _set_from_column(self, x: int) -> None:
        if self._track_width < _NARROWEST_TRACK:
            return
        share = (x - len(self._label)) / (self._track_width - 1)
        self._set(self.minimum + share * (self.maximum - self.minimum))

    def _set(self, value: float) -> None:
        steps = round((min(max(value, self.minimum), self.maximum) - self.minimum) / self.step)
        value = round(self.minimum + steps * self.step, 6)
        if value != self.value:
            self.value = value
            self.post_message(self.Changed(self, value))

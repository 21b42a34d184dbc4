"""A slider: a value in a range, set by keys, click, drag and wheel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget


class Slider(Widget, can_focus=True):
    """`label  ━━━●────  value` on one line.

    The user moves it in whole `step`s between `minimum` and `maximum`; a value set by the program
    is shown as it is, even outside of them.
    """

    COMPONENT_CLASSES = {"slider--label", "slider--filled", "slider--track", "slider--value"}

    BINDINGS = [
        Binding("left,down,minus", "step(-1)", "Less", id="slider.less", tooltip="One step less"),
        Binding(
            "right,up,plus,equals_sign",
            "step(1)",
            "More",
            id="slider.more",
            tooltip="One step more",
        ),
        Binding("home", "end(-1)", "Least", show=False, id="slider.least"),
        Binding("end", "end(1)", "Most", show=False, id="slider.most"),
    ]

    value: reactive[float] = reactive(0.0, init=False)

    @dataclass
    class Changed(Message):
        """The user moved the slider."""

        slider: Slider
        value: float

        @property
        def control(self) -> Slider:
            return self.slider

    def __init__(
        self,
        label: str,
        *,
        minimum: float,
        maximum: float,
        step: float,
        value: float,
        show: Callable[[float], str],
        label_width: int = 13,
        value_width: int = 5,
        id: str | None = None,
        tooltip: str | None = None,
    ) -> None:
        """`show` writes a value, for instance `"{:.2f}".format`."""
        super().__init__(id=id)
        self._label = label.ljust(label_width)
        self._show = show
        self._value_width = value_width
        self.minimum, self.maximum, self.step = minimum, maximum, step
        self.tooltip = tooltip
        self.set_reactive(Slider.value, value)

    def render(self) -> Content:
        width = self._track_width
        share = (self.value - self.minimum) / (self.maximum - self.minimum)
        knob = round(min(max(share, 0.0), 1.0) * (width - 1))
        filled = self.get_visual_style("slider--filled")
        return Content.assemble(
            (self._label, self.get_visual_style("slider--label")),
            ("━" * knob + "●", filled),
            ("─" * (width - 1 - knob), self.get_visual_style("slider--track")),
            (
                self._show(self.value).rjust(self._value_width),
                self.get_visual_style("slider--value"),
            ),
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

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._set(self.value + self.step)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._set(self.value - self.step)

    @property
    def _track_width(self) -> int:
        return max(3, self.content_size.width - len(self._label) - self._value_width)

    def _set_from_column(self, x: int) -> None:
        share = (x - len(self._label)) / (self._track_width - 1)
        self._set(self.minimum + share * (self.maximum - self.minimum))

    def _set(self, value: float) -> None:
        steps = round((min(max(value, self.minimum), self.maximum) - self.minimum) / self.step)
        value = round(self.minimum + steps * self.step, 6)
        if value != self.value:
            self.value = value
            self.post_message(self.Changed(self, value))

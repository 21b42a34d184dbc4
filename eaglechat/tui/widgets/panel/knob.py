"""What a slider and a row of words share: their keys, the wheel, and their message."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.widget import Widget

from eaglechat.tui.commands.bindings import moves

_LABEL_CELLS = 9


class Knob(Widget, can_focus=True):
    """A control with a value that the user turns in steps."""

    # The keyboard reaches it; a click leaves the focus to whoever is typing.
    FOCUS_ON_CLICK = False
    COMPONENT_CLASSES = {"knob--label"}
    BINDINGS = moves(
        {
            "left,down": "step(-1)",
            "right,up": "step(1)",
            "home": "end(-1)",
            "end": "end(1)",
        }
    )

    @dataclass
    class Changed(Message):
        """The user gave it this value."""

        knob: Knob
        value: float | str

    def __init__(self, label: str, *, id: str | None = None, tooltip: str = "") -> None:
        super().__init__(id=id)
        self.tooltip = tooltip
        self._label = label.ljust(_LABEL_CELLS)

    @abstractmethod
    def action_step(self, steps: int) -> None: ...

    @abstractmethod
    def action_end(self, side: int) -> None: ...

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_step(1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_step(-1)

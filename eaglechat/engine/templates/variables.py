"""What a chat template is told beside the conversation: whether and how much the model thinks.

Templates spell it in many ways. A template gets the spellings it reads, and says by what it makes
of them whether it has a switch at all.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eaglechat.wire.protocol import EFFORTS, Thinking

_ON = {
    "enable_thinking": True,
    "thinking": True,
    "thinking_mode": "enabled",
    "thinking_option": "on",
}
_OFF = {
    "enable_thinking": False,
    "thinking": False,
    "thinking_mode": "disabled",
    "thinking_option": "off",
    "thinking_budget": 0,
}
_EFFORT = ("reasoning_effort", "reasoning_strength", "thinking_effort")


@dataclass(frozen=True)
class Switches:
    """What a template lets one choose."""

    on_off: bool
    efforts: tuple[str, ...]


def variables(thinking: Thinking, now: datetime.datetime | None = None) -> dict[str, Any]:
    """The variables for a template. Where nothing is asked for they are llama.cpp's."""
    now = now or datetime.datetime.now()
    given: dict[str, Any] = {
        "enable_thinking": True,
        "datetime": now.strftime("%b %d %Y"),
        "date_string": now.strftime("%d %b %Y"),
    }
    if thinking.enabled is not None:
        given |= _ON if thinking.enabled else _OFF
    if thinking.effort is not None:
        given |= dict.fromkeys(_EFFORT, thinking.effort)
    return given


def find_switches(render: Callable[[Mapping[str, Any]], str]) -> Switches:
    """What a template does with the variables. `render(variables)` renders some conversation with
    them and may raise anything."""
    now = datetime.datetime.now()

    def made_of(thinking: Thinking) -> str | None:
        try:
            return render(variables(thinking, now))
        except Exception:  # a template refuses what it does not know, in its own way
            return None

    plain, off = made_of(Thinking(enabled=True)), made_of(Thinking(enabled=False))
    by_effort = {effort: made_of(Thinking(effort=effort)) for effort in EFFORTS}
    differ = len({text for text in by_effort.values() if text is not None}) > 1
    return Switches(
        on_off=plain is not None and off is not None and plain != off,
        efforts=tuple(e for e, text in by_effort.items() if differ and text is not None),
    )

"""The controls of a chat: one table, which the panel, the palette and the commands read.

`Controls` are the values in force. A change makes new ones and gives them to the session.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from msgspec.structs import asdict, replace

from eaglechat.hub.local.pair import Pair
from eaglechat.settings.description import SettingDoc, find
from eaglechat.settings.model import Settings
from eaglechat.wire.protocol import (
    AUTO,
    EFFORTS,
    Capabilities,
    Reasoning,
    Recommended,
    Speculation,
    Thinking,
)

FIRST_BY_HAND = 3
"""The draft length when auto is switched off before there was a round."""
_STEP = 0.05
"""Between the numbers that a knob offers."""


class Controls(Speculation, frozen=True, kw_only=True):
    """The values in force. A change applies from the next round on, or from the next reply on."""

    temperature: float
    thinking: str = AUTO
    effort: str = AUTO
    """For `thinking` and `effort`, auto leaves them to the chat template."""


@dataclass(frozen=True)
class Control:
    """A control. `name` is its field in Controls, its key in the settings, which say what values
    it takes, and its field in the `Set` request."""

    name: str
    choices: tuple[str, ...] = ()
    """Its words, where the setting takes any text."""

    @cached_property
    def doc(self) -> SettingDoc:
        is_of_drafting = self.name in Speculation.__struct_fields__
        return find("speculation" if is_of_drafting else "generation", self.name)

    @property
    def words(self) -> tuple[str, ...]:
        """All its values, or those instead of a number."""
        return self.choices or self.doc.words

    def word(self, value: Any) -> str:
        """A value as it is shown: `on`, `0.70`, `auto`."""
        if self.doc.kind is bool:
            return "on" if value else "off"
        return f"{value:.2f}" if self.doc.kind is float else str(value)

    def steps(self, value: float) -> tuple[str, ...]:
        """The words of `value` and of every step in the range, in their order."""
        least, most = self.doc.range.minimum or 0.0, self.doc.range.maximum or 0.0
        values = {value, *(least + i * _STEP for i in range(round((most - least) / _STEP) + 1))}
        return tuple(dict.fromkeys(map(self.word, sorted(values))))


ENABLED = Control("enabled")
N_DRAFT_MAX = Control("n_draft_max")
P_MIN = Control("p_min")
NGRAM = Control("ngram")
SHAPE = Control("shape")
TEMPERATURE = Control("temperature")
CONTROLS: tuple[Control, ...] = (ENABLED, NGRAM, N_DRAFT_MAX, P_MIN, TEMPERATURE, SHAPE)
"""The controls that also apply to a reply that is being written."""

DRAFTER = Control("drafter")

_DRAFTING = frozenset({control.name for control in (*CONTROLS, DRAFTER)} - {TEMPERATURE.name})
STARTED_WITH = frozenset({"enabled", "n_draft_max", "p_min"})
"""Controls that are start options of a program such as llama-server."""

THINKING = Control("thinking")
EFFORT = Control("effort", choices=(AUTO, *EFFORTS))
LATER_CONTROLS = (DRAFTER, THINKING, EFFORT)
"""Controls that apply from the next reply on."""


def control_named(name: str) -> Control:
    controls = (*CONTROLS, *LATER_CONTROLS)
    return next(control for control in controls if control.name == name)


def first_controls(
    settings: Settings, pair: Pair | None = None, recommended: Recommended | None = None
) -> Controls:
    """The controls of a new chat: the settings, and where nobody set one, the target's
    recommendation. A pair may have its own n_draft_max."""
    generation = settings.generation
    controls = Controls(
        **asdict(settings.speculation),
        temperature=settings.to_sampling(recommended).temperature,
        thinking=generation.thinking,
        effort=generation.effort if generation.effort in EFFORTS else AUTO,
    )
    if pair is None or pair.n_draft_max is None:
        return controls
    return replace(controls, n_draft_max=pair.n_draft_max)


def without(names: Iterable[str], before: Controls, after: Controls) -> Controls:
    """`after`, with these controls as they are in `before`."""
    return replace(after, **{name: getattr(before, name) for name in names})


def not_followed(can: Capabilities) -> frozenset[str]:
    """Names of the controls that have no effect on the drafting of an engine that can do this."""
    if not can.draft_length:
        return _DRAFTING
    return frozenset() if can.own else _DRAFTING - STARTED_WITH


def differences(before: Controls, after: Controls) -> dict[str, Any]:
    """The changed values by name: the fields of a `Set` request."""
    names = (control.name for control in CONTROLS)
    new = {name: getattr(after, name) for name in names}
    return {name: value for name, value in new.items() if value != getattr(before, name)}


def thinking_of(controls: Controls, reasoning: Reasoning) -> Thinking:
    """What the chat template is asked for: the least effort it knows that is no less than the one
    chosen."""
    enabled = {AUTO: None, "on": True, "off": False}[controls.thinking]
    known = [word for word in EFFORTS if word in reasoning.efforts]
    if controls.effort == AUTO or not known:
        return Thinking(enabled=enabled)
    at_least = [w for w in known if EFFORTS.index(w) >= EFFORTS.index(controls.effort)]
    return Thinking(enabled=enabled, effort=(at_least or known[-1:])[0])

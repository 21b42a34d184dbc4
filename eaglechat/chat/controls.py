"""The controls of a chat: one table, which the panel, the palette and the commands read.

`Controls` are the values in force. A change makes new ones and gives them to the session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from msgspec.structs import asdict, replace

from eaglechat.hub.local.pairs import Pair
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

_STEP = 0.05
"""Between the numbers that a knob offers."""


class Controls(Speculation, frozen=True, kw_only=True):
    """The values in force. A change applies from the next round on, or from the next reply on."""

    temperature: float
    thinking: str = AUTO
    effort: str = AUTO
    """For `thinking` and `effort`, auto leaves them to the chat template."""

    def with_those_of(self, before: Controls, names: Iterable[str]) -> Controls:
        return replace(self, **{name: getattr(before, name) for name in names})

    def changed_from(self, before: Controls) -> dict[str, Any]:
        """The changed values by name: the fields of a `Set` request."""
        new = {name: getattr(self, name) for name in CONTROLS if name not in LATER}
        return {name: value for name, value in new.items() if value != getattr(before, name)}

    def asks(self, reasoning: Reasoning) -> Thinking:
        """What the chat template is asked for: the least effort it knows that is no less than the
        one chosen."""
        enabled = {AUTO: None, "on": True, "off": False}[self.thinking]
        known = [word for word in EFFORTS if word in reasoning.efforts]
        if self.effort == AUTO or not known:
            return Thinking(enabled=enabled)
        at_least = [w for w in known if EFFORTS.index(w) >= EFFORTS.index(self.effort)]
        return Thinking(enabled=enabled, effort=(at_least or known[-1:])[0])


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


STARTED_WITH = frozenset({"enabled", "n_draft_max", "p_min"})
"""Controls that are start options of a program such as llama-server."""
LATER = ("drafter", "thinking", "effort")
"""Controls that apply from the next reply on; the others also to one that is being written."""
CONTROLS: Mapping[str, Control] = {
    name: Control(name, choices=(AUTO, *EFFORTS) if name == "effort" else ())
    for name in ("enabled", "ngram", "n_draft_max", "p_min", "temperature", "shape", *LATER)
}
"""By their names."""


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


def not_followed(can: Capabilities) -> frozenset[str]:
    """Names of the controls that have no effect on the drafting of an engine that can do this."""
    drafting = CONTROLS.keys() & set(Speculation.__struct_fields__)
    if not can.draft_length:
        return frozenset(drafting)
    return frozenset() if can.own else frozenset(drafting - STARTED_WITH)

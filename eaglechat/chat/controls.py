"""The controls of a chat: one table, which the panel, the palette and the commands read.

`Controls` are the values in force. A change makes new ones and gives them to the session.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import msgspec

from eaglechat.chat.recording import Terms
from eaglechat.hub.local.pair import Pair
from eaglechat.settings import Settings, find
from eaglechat.settings.description import SettingDoc
from eaglechat.wire.drafters import DrafterChoice
from eaglechat.wire.protocol import (
    AUTO,
    EFFORTS,
    NO_REASONING,
    TOP_DEFAULT,
    Auto,
    Hello,
    Reasoning,
    RecommendedSampling,
    Shape,
    Speculation,
    Thinking,
)
from eaglechat.wire.records import Round

FIRST_BY_HAND = 3
"""The draft length when auto is switched off before there was a round."""
_STEP = 0.05
"""Between the numbers that a knob offers."""


@dataclass(frozen=True)
class Controls:
    """The values in force. A change applies from the next round on."""

    enabled: bool
    n_draft_max: int | Auto
    p_min: float
    temperature: float
    ngram: bool = True
    shape: Shape = AUTO
    drafter: DrafterChoice = AUTO
    thinking: str = AUTO
    effort: str = AUTO
    """For `thinking` and `effort`, auto leaves them to the chat template."""


@dataclass(frozen=True)
class Control:
    """A control. `name` is its field in Controls, its key in `table` of the settings, which say
    what values it takes, and its field in the `Set` request."""

    name: str
    table: Literal["speculation", "generation"]
    choices: tuple[str, ...] = ()
    """Its words, where the setting takes any text."""

    @cached_property
    def _setting(self) -> SettingDoc:
        return find(self.table, self.name)

    @property
    def explanation(self) -> str:
        """What it does: the description of its setting."""
        return self._setting.description

    @property
    def kind(self) -> type:
        """bool, int, float or str."""
        return self._setting.kind

    @property
    def words(self) -> tuple[str, ...]:
        """All its values, or those instead of a number."""
        return self.choices or self._setting.words

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest number."""
        numbers = self._setting.range
        return numbers.minimum or 0.0, numbers.maximum or 0.0

    def word(self, value: Any) -> str:
        """A value as it is shown: `on`, `0.70`, `auto`."""
        if self.kind is bool:
            return "on" if value else "off"
        return f"{value:.2f}" if self.kind is float else str(value)

    def value(self, word: str) -> Any:
        """The value that is shown as this word."""
        if self.kind is bool:
            return word == "on"
        return word if word in self.words else self.kind(word)

    def steps(self, value: float) -> tuple[str, ...]:
        """The words of `value` and of every step in the range, in their order."""
        least, most = self.range
        values = {value, *(least + i * _STEP for i in range(round((most - least) / _STEP) + 1))}
        return tuple(dict.fromkeys(map(self.word, sorted(values))))

    def fitting(self, value: Any) -> Any:
        """The nearest number in the range; a word as it is."""
        if self.kind not in (int, float) or value in self.words:
            return value
        least, most = self.range
        value = min(max(value, least), most)
        return round(value) if self.kind is int else value


ENABLED = Control("enabled", "speculation")
N_DRAFT_MAX = Control("n_draft_max", "speculation")
P_MIN = Control("p_min", "speculation")
NGRAM = Control("ngram", "speculation")
SHAPE = Control("shape", "speculation")
TEMPERATURE = Control("temperature", "generation")
CONTROLS: tuple[Control, ...] = (ENABLED, NGRAM, N_DRAFT_MAX, P_MIN, TEMPERATURE, SHAPE)
"""The controls that also apply to a reply that is being written."""

DRAFTER = Control("drafter", "speculation")

_DRAFTING = frozenset(
    control.name for control in (*CONTROLS, DRAFTER) if control.table == "speculation"
)
STARTED_WITH = frozenset({"enabled", "n_draft_max", "p_min"})
"""Controls that are start options of a program such as llama-server."""

THINKING = Control("thinking", "generation")
EFFORT = Control("effort", "generation", choices=(AUTO, *EFFORTS))
LATER_CONTROLS = (DRAFTER, THINKING, EFFORT)
"""Controls that apply from the next reply on."""


def control_named(name: str) -> Control:
    controls = (*CONTROLS, *LATER_CONTROLS)
    return next(control for control in controls if control.name == name)


def first_controls(
    settings: Settings, pair: Pair, recommended: RecommendedSampling | None = None
) -> Controls:
    """The controls of a new chat: the settings, and where nobody set one, the target's
    recommendation. A pair may have its own n_draft_max."""
    controls = Controls(**_of_settings(settings, recommended))
    if pair.n_draft_max is None:
        return controls
    return replace(controls, n_draft_max=pair.n_draft_max)


def recommended_for(control: Control, recommended: RecommendedSampling | None) -> float | None:
    """The model file's recommendation for a control; None if it has none."""
    value: float | None = getattr(recommended, control.name, None)
    return value


def turned(controls: Controls, control: Control, value: Any) -> Controls:
    """The controls with one changed to a value, or to the nearest one in its range."""
    return replace(controls, **{control.name: control.fitting(value)})


def without(names: Iterable[str], before: Controls, after: Controls) -> Controls:
    """`after`, with these controls as they are in `before`."""
    return replace(after, **{name: getattr(before, name) for name in names})


def not_followed(hello: Hello | None) -> frozenset[str]:
    """Names of the controls that have no effect on an engine's drafting."""
    if hello is None:
        return frozenset()
    if not hello.can.draft_length:
        return _DRAFTING
    return _DRAFTING - STARTED_WITH if hello.can.restarts else frozenset()


def drafting_as_started(controls: Controls) -> Controls:
    """The controls for an engine whose drafting cannot be changed from here."""
    return replace(controls, enabled=True, n_draft_max=AUTO, drafter=AUTO)


def length_in_force(controls: Controls, latest: Round | None) -> int:
    """The draft length that is set, or the one auto chose in the latest round."""
    if controls.n_draft_max != AUTO:
        return controls.n_draft_max
    return latest.n_draft_max if latest else FIRST_BY_HAND


def terms_of(
    settings: Settings,
    controls: Controls,
    pair: Pair,
    recommended: RecommendedSampling | None = None,
    reasoning: Reasoning = NO_REASONING,
) -> Terms:
    """The terms of the next reply: the settings, overridden by the controls."""
    sampling, speculation = settings.to_sampling(recommended), settings.to_speculation()
    target, draft = pair.to_load
    return Terms(
        pair=pair.name,
        target=target,
        draft=draft,
        system_prompt=settings.generation.system_prompt,
        sampling=msgspec.structs.replace(sampling, **_values(controls, "generation")),
        speculation=msgspec.structs.replace(speculation, **_values(controls, "speculation")),
        thinking=_thinking(controls, reasoning),
        max_tokens=settings.generation.max_tokens or None,
        top=TOP_DEFAULT if settings.interface.inspect else 0,
    )


def first_speculation(settings: Settings, pair: Pair) -> Speculation:
    """The speculation terms of the first reply with this pair."""
    return terms_of(settings, first_controls(settings, pair), pair).speculation


def seeded_anew(terms: Terms) -> Terms:
    """The same terms without a seed, so that the engine draws one."""
    return msgspec.structs.replace(
        terms, sampling=msgspec.structs.replace(terms.sampling, seed=None)
    )


def differences(before: Controls, after: Controls) -> dict[str, Any]:
    """The changed values by name: the fields of a `Set` request."""
    old, new = vars(before), vars(after)
    names = (control.name for control in CONTROLS)
    return {name: new[name] for name in names if new[name] != old[name]}


def follow_settings(
    controls: Controls,
    before: Settings,
    after: Settings,
    recommended: RecommendedSampling | None = None,
) -> Controls:
    """The controls with those values that changed between these settings."""
    old, new = _of_settings(before, recommended), _of_settings(after, recommended)
    return replace(controls, **{name: new[name] for name in new if new[name] != old[name]})


def _of_settings(settings: Settings, recommended: RecommendedSampling | None) -> dict[str, Any]:
    tables = {
        "generation": settings.to_sampling(recommended),
        "speculation": settings.to_speculation(),
    }
    generation = settings.generation
    return {
        **{
            control.name: getattr(tables[control.table], control.name)
            for control in (*CONTROLS, DRAFTER)
        },
        "thinking": generation.thinking,
        "effort": generation.effort if generation.effort in EFFORTS else AUTO,
    }


def _thinking(controls: Controls, reasoning: Reasoning) -> Thinking:
    """What the chat template is asked for: the least effort it knows that is no less than the one
    chosen."""
    enabled = {AUTO: None, "on": True, "off": False}[controls.thinking]
    known = [word for word in EFFORTS if word in reasoning.efforts]
    if controls.effort == AUTO or not known:
        return Thinking(enabled=enabled)
    at_least = [w for w in known if EFFORTS.index(w) >= EFFORTS.index(controls.effort)]
    return Thinking(enabled=enabled, effort=(at_least or known[-1:])[0])


def _values(controls: Controls, table: str) -> dict[str, Any]:
    named = (c.name for c in (*CONTROLS, DRAFTER) if c.table == table)
    return {name: getattr(controls, name) for name in named}

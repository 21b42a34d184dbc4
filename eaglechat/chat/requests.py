"""From settings and controls to what the engine is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from eaglechat.chat.conversation import Controls, Run
from eaglechat.hub.local.pair import Pair
from eaglechat.settings import Settings
from eaglechat.wire.protocol import AUTO, Sampling, Set, Speculation

FIRST_BY_HAND = 3
"""The draft length that takes over from auto before a round was written."""


def first_controls(settings: Settings, pair: Pair) -> Controls:
    """What the controls of a new chat show; a pair may bring its own n_draft_max."""
    speculation = settings.speculation
    n_draft_max = speculation.n_draft_max if pair.n_draft_max is None else pair.n_draft_max
    return Controls(
        enabled=speculation.enabled,
        n_draft_max=n_draft_max,
        p_min=speculation.p_min,
        temperature=settings.generation.temperature,
    )


def length_in_force(controls: Controls, run: Run | None) -> int:
    """The draft length set, or the one auto chose last."""
    if controls.n_draft_max != AUTO:
        return controls.n_draft_max
    return run.rounds[-1].n_draft_max if run and run.rounds else FIRST_BY_HAND


def sampling(settings: Settings, controls: Controls) -> Sampling:
    """The settings' sampling, at the temperature of the controls."""
    return msgspec.structs.replace(settings.to_sampling(), temperature=controls.temperature)


def speculation(settings: Settings, controls: Controls) -> Speculation:
    """The settings' speculation, turned as the controls are."""
    return msgspec.structs.replace(
        settings.to_speculation(),
        enabled=controls.enabled,
        n_draft_max=controls.n_draft_max,
        p_min=controls.p_min,
    )


_TURNED = ("enabled", "n_draft_max", "p_min", "temperature")


def change(before: Controls, after: Controls) -> Set | None:
    """The request that turns a running reply's controls from one to the other, if they differ."""
    changed = {
        name: getattr(after, name)
        for name in _TURNED
        if getattr(after, name) != getattr(before, name)
    }
    return Set(**changed) if changed else None


def changed_names(change: Set) -> set[str]:
    """The names of what a request turns."""
    return {name for name in _TURNED if getattr(change, name) is not None}


def follow_settings(controls: Controls, before: Settings, after: Settings) -> Controls:
    """Controls that take over what changed in the settings, and nothing else."""
    old, new = _of_settings(before), _of_settings(after)
    return replace(controls, **{name: new[name] for name in _TURNED if new[name] != old[name]})


def _of_settings(settings: Settings) -> dict[str, Any]:
    return {
        "enabled": settings.speculation.enabled,
        "n_draft_max": settings.speculation.n_draft_max,
        "p_min": settings.speculation.p_min,
        "temperature": settings.generation.temperature,
    }

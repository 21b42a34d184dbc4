"""The command palette: every key of the screen by its name, and the controls with a value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Protocol, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from eaglechat.chat.conversation import Controls
from eaglechat.wire.protocol import AUTO
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

_WITH_VALUE = re.compile(
    r"\s*(?P<name>[a-z_ ]+?)\s+(?P<value>\d+(?:\.\d+)?|auto)\s*", re.IGNORECASE
)
_MOST = {"n_draft_max": float(N_DRAFT_MAX_LIMIT), "p_min": 1.0, "temperature": 2.0}


class ScreenCommands(Provider):
    """What the keys of this screen and of the app do."""

    async def discover(self) -> Hits:
        for name, action, explanation in self._actions():
            yield DiscoveryHit(name, partial(self.screen.run_action, action), help=explanation)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, action, explanation in self._actions():
            if (score := matcher.match(name)) > 0:
                run = partial(self.screen.run_action, action)
                yield Hit(score, matcher.highlight(name), run, help=explanation)

    def _actions(self) -> Iterator[tuple[str, str, str]]:
        """Name, action and explanation of each key."""
        seen = set()
        for node in (self.screen, self.app):
            for binding in type(node).BINDINGS:
                if isinstance(binding, tuple) or not binding.tooltip or binding.action in seen:
                    continue
                seen.add(binding.action)
                action = binding.action if node is self.screen else f"app.{binding.action}"
                yield binding.description, action, binding.tooltip


class HasControls(Protocol):
    """A screen whose controls can be turned."""

    @property
    def controls(self) -> Controls: ...

    def turn(self, controls: Controls) -> None: ...


class ControlCommands(Provider):
    """`n_draft_max 5`, `n_draft_max auto`, `p_min 0.4`, `temperature 0.8`, as they are typed."""

    async def search(self, query: str) -> Hits:
        chat = cast(HasControls, self.screen)
        for name, controls in controls_asked_for(query, chat.controls):
            yield Hit(1.0, name, partial(chat.turn, controls), help="From the next round on")


def controls_asked_for(query: str, controls: Controls) -> Iterator[tuple[str, Controls]]:
    """What a query such as `temp 0.8` asks for: a name for it, and the controls after it."""
    asked = _WITH_VALUE.fullmatch(query)
    if asked is None:
        return
    for name, most in _MOST.items():
        if not name.startswith(asked["name"].casefold().replace(" ", "_")):
            continue
        if asked["value"].casefold() == AUTO:
            if name == "n_draft_max":
                yield f"{name} {AUTO}", replace(controls, n_draft_max=AUTO)
            continue
        value = min(float(asked["value"]), most)
        if name == "n_draft_max":
            yield f"{name} {value:.0f}", replace(controls, n_draft_max=int(value))
        elif name == "p_min":
            yield f"{name} {value:.2f}", replace(controls, p_min=value)
        else:
            yield f"{name} {value:.2f}", replace(controls, temperature=value)

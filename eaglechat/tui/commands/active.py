"""The commands that hold on a screen right now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from textual.dom import DOMNode
from textual.screen import Screen

from eaglechat.tui.commands.bindings import command_of
from eaglechat.tui.commands.command import Command
from eaglechat.tui.commands.registry import commands_of, keys_of
from eaglechat.tui.commands.table import COMMANDS


@dataclass(frozen=True)
class Active:
    """A command, whose it is, and the keys that reach it."""

    command: Command
    node: DOMNode
    keys: tuple[str, ...]
    enabled: bool


def active_commands(screen: Screen[Any]) -> list[Active]:
    """Those of the widget with the focus, of the screen and of the app, each once."""
    found: dict[str, Active] = {}
    for key, active in screen.active_bindings.items():
        command = command_of(active.binding)
        if command is None:
            continue
        before = found.get(command.id)
        keys = (*before.keys, key) if before else (key,)
        found[command.id] = Active(command, active.node, keys, active.enabled)
    # A dialog hides the bindings of the app, yet those with priority reach it.
    for command in commands_of("app"):
        found.setdefault(command.id, Active(command, screen.app, keys_of(command.id), True))
    return sorted(map(_in_order, found.values()), key=lambda one: (_depth(one), _place(one)))


def _in_order(active: Active) -> Active:
    """With the key first that is named."""
    keys = tuple(key for key in keys_of(active.command.id) if key in active.keys)
    return replace(active, keys=keys)


def _depth(active: Active) -> int:
    """From the widget with the focus outwards."""
    return -len(active.node.ancestors_with_self)


def _place(active: Active) -> int:
    return COMMANDS.index(active.command)

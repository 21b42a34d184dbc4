"""From commands to Textual's bindings, and back from the bindings of a screen to commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from textual import events
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

from eaglechat.tui.commands.command import Command, Scope
from eaglechat.tui.commands.registry import BY_ID, Keymap, commands_of, keys_of
from eaglechat.tui.commands.table import COMMANDS

_PRIORITY_SUFFIX = "!"
"""Ends the id of a command's priority binding, which gets its key before the focused widget."""
_NO_KEY = "unbound"


def bindings_of(*scopes: Scope) -> list[BindingType]:
    """The BINDINGS of a screen or widget, with the keys as shipped."""
    return [
        binding
        for command in commands_of(*scopes)
        if command.all_keys
        for binding in _bindings(command)
    ]


def moves(actions: Mapping[str, str], *, priority: bool = False) -> list[BindingType]:
    """The BINDINGS of arrow keys and the like, by their keys. They are no commands: they move as in
    any other program, and `[keys]` does not change them."""
    return [Binding(key, action, show=False, priority=priority) for key, action in actions.items()]


def turn_bindings() -> list[BindingType]:
    """The BINDINGS of the transcript, which has the focus while a turn is selected by a key. They
    have no id: `[keys]` does not change them."""
    return [
        Binding(command.turn_key, f"screen.{command.call()}", show=False)
        for command in COMMANDS
        if command.turn_key
    ]


def textual_keymap(keymap: Keymap) -> dict[str, str]:
    """The argument of `App.set_keymap` that puts other keys in force."""
    ids: dict[str, str] = {}
    for id, keys in keymap.items():
        ids[id] = ",".join(keys)
        ids[id + _PRIORITY_SUFFIX] = ",".join(key for key in keys if _is_spare(key)) or _NO_KEY
    return ids


def command_of(binding: Binding) -> Command | None:
    """The command behind a binding, if it is one of ours."""
    return BY_ID.get((binding.id or "").removesuffix(_PRIORITY_SUFFIX))


def _bindings(command: Command) -> Iterator[Binding]:
    """The binding of the command's keys, and one with priority for keys that a user chose, which
    may also be keys of the focused widget."""
    keys = ",".join(command.all_keys)
    yield _binding(command, command.id, keys, command.priority)
    if not command.priority:
        yield _binding(command, command.id + _PRIORITY_SUFFIX, _NO_KEY, True)


def _binding(command: Command, id: str, keys: str, priority: bool) -> Binding:
    return Binding(
        keys,
        command.call(),
        command.footer or command.title,
        show=bool(command.footer),
        priority=priority,
        tooltip=command.help,
        id=id,
    )


def _is_spare(key: str) -> bool:
    """Whether the key may be taken from any focused widget: none types or moves by it."""
    return re.search(r"ctrl\+|alt\+|^f\d+$", key) is not None


async def run_own_key(field: Widget, event: events.Key) -> None:
    """Do what a key of a text field does when it comes, as the field does with letters. Textual
    does it once the key has bubbled to the app: after letters that came behind it."""
    own = field.screen.active_bindings.get(event.key)
    if own is not None and own.node is field and own.enabled and not event.is_printable:
        event.prevent_default().stop()
        await field.run_action(own.binding.action)


@dataclass(frozen=True)
class Active:
    """A command that holds now, the widget, screen or app it belongs to, and its keys."""

    command: Command
    node: DOMNode
    keys: tuple[str, ...]
    enabled: bool


def active_commands(screen: Screen[Any]) -> list[Active]:
    """The commands that hold now: of the focused widget, then of the screen, then of the app."""
    found: dict[str, Active] = {}
    for key, active in screen.active_bindings.items():
        command = command_of(active.binding)
        if command is None:
            continue
        before = found.get(command.id)
        keys = (*before.keys, key) if before else (key,)
        found[command.id] = Active(command, active.node, keys, active.enabled)
    # A dialog hides the bindings of the app, although those with priority work.
    for command in commands_of("app"):
        found.setdefault(command.id, Active(command, screen.app, keys_of(command.id), True))
    # The keys of each in the order of the table: sentences name the first.
    ordered = [
        replace(one, keys=tuple(key for key in keys_of(one.command.id) if key in one.keys))
        for one in found.values()
    ]
    return sorted(
        ordered,
        key=lambda one: (-len(one.node.ancestors_with_self), COMMANDS.index(one.command)),
    )

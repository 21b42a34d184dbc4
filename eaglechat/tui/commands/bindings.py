"""From commands to Textual's bindings, and back from the bindings of a screen to commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
"""Ends the id of a command's priority binding, which gets its keys before the focused widget."""
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
    return {
        binding_id: joined
        for id, keys in keymap.items()
        for binding_id, joined, _ in _parted(BY_ID[id], keys)
    }


def command_of(binding: Binding) -> Command | None:
    """The command behind a binding, if it is one of ours."""
    return BY_ID.get((binding.id or "").removesuffix(_PRIORITY_SUFFIX))


def _bindings(command: Command) -> Iterator[Binding]:
    for id, keys, priority in _parted(command, command.all_keys):
        yield Binding(
            keys,
            command.call(),
            command.footer or command.title,
            show=bool(command.footer),
            priority=priority,
            tooltip=command.help,
            id=id,
        )


def _parted(command: Command, keys: Sequence[str]) -> list[tuple[str, str, bool]]:
    """The ids, keys and priorities of a command's two bindings. Keys by which no widget types or
    moves come before the focused widget, but for the prompt's own, which wait for the letters
    before them."""
    is_prompts = command.scopes == ("prompt",)
    first = [key for key in keys if not is_prompts and re.search(r"ctrl\+|alt\+|^f\d+$", key)]
    later = [key for key in keys if key not in first]
    return [
        (command.id, ",".join(later) or _NO_KEY, False),
        (command.id + _PRIORITY_SUFFIX, ",".join(first) or _NO_KEY, True),
    ]


async def run_own_key(field: Widget, event: events.Key, around: Widget | None = None) -> None:
    """Do what a key of a text field, or of the widget `around` it, does when it comes, as the field
    does with letters. Textual does it once the key has bubbled to the app: after letters that came
    behind it."""
    own = field.screen.active_bindings.get(event.key)
    if own is None or own.node not in (field, around) or not own.enabled or event.is_printable:
        return
    # Without a selection the field copies nothing, and the key is the screen's.
    if await field.app.run_action(own.binding.action, own.node):
        event.prevent_default().stop()


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

"""All commands, and the names of their keys in force."""

from __future__ import annotations

import re
from collections.abc import Mapping

from textual.keys import format_key

from eaglechat.tui.commands.command import LEADER, Command, Scope
from eaglechat.tui.commands.table import COMMANDS

BY_ID: Mapping[str, Command] = {command.id: command for command in COMMANDS}

Keymap = Mapping[str, tuple[str, ...]]
"""Keys by the id of a command, in place of those it is shipped with."""

ENTER, TAB = "Enter", "Tab"
"""Keys of buttons, fields and lists: they are the same in every program, and stay."""

# Textual names these by a symbol or in lower case.
_NAMES = {
    "escape": "Esc",
    "enter": ENTER,
    "backspace": "Backspace",
    "delete": "Delete",
    "pageup": "PgUp",
    "pagedown": "PgDn",
}

_in_force: dict[str, tuple[str, ...]] = {}


def use(keymap: Keymap) -> None:
    """Put other keys in force, in this process."""
    _in_force.clear()
    _in_force.update(keymap)


def keys_of(id: str) -> tuple[str, ...]:
    """The keys in force of a command, as Textual names them."""
    return _in_force.get(id) or BY_ID[id].all_keys


def key_of(id: str) -> str:
    """The key of a command as sentences name it. Raises KeyError for one that is none."""
    return name_of(keys_of(id)[0])


def with_keys(text: str) -> str:
    """A sentence with each `{chat.stop}` in it replaced by the name of that command's key."""
    return re.sub(r"\{([a-z_]+\.[a-z_]+)\}", lambda match: key_of(match[1]), text)


def name_of(key: str) -> str:
    """A key as the keyboard writes it: `leader v` is the name of the leader's key, then V."""
    leader, _, second = key.rpartition(" ")
    if leader != LEADER:
        return _key_name(key)
    name = _key_name(second)
    return f"{_key_name(keys_of('app.leader')[0])} {name.upper() if len(name) == 1 else name}"


def _key_name(key: str) -> str:
    *modifiers, last = key.split("+")
    name = _NAMES.get(last) or format_key(last)
    if name.isalnum() and (modifiers or len(name) > 1) and last not in _NAMES:
        name = name.capitalize()
    return "+".join([*(modifier.capitalize() for modifier in modifiers), name])


def commands_of(*scopes: Scope) -> list[Command]:
    """The commands of some screens or widgets."""
    return [command for command in COMMANDS if not set(scopes).isdisjoint(command.scopes)]

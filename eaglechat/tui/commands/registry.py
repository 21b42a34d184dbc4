"""The commands by id and scope, and the keys in force with their names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from eaglechat.tui.commands.command import LEADER, Command, Scope
from eaglechat.tui.commands.table import COMMANDS

BY_ID: Mapping[str, Command] = {command.id: command for command in COMMANDS}

Keymap = Mapping[str, tuple[str, ...]]
"""Keys by the id of a command, which replace those it is shipped with."""

ENTER, TAB = "Enter", "Tab"
"""Keys of buttons, fields and lists, which cannot be changed."""

SEARCH_KEY = "space"
"""Behind the leader's key: the search."""

# The others are the Unicode names of characters, or the names that keyboards have.
_NAMES = {
    "escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "up": "↑", "down": "↓", "left": "←",
    "right": "→", "plus": "+", "minus": "-", "slash": "/", "backslash": "\\", "at": "@",
    "underscore": "_",
}  # fmt: skip

KEY_PLACEHOLDER = re.compile(r"\{([a-z_]+\.[a-z_]+)\}")

_in_force: dict[str, tuple[str, ...]] = {}


def use(keymap: Keymap) -> None:
    """Put other keys in force, for the whole process."""
    _in_force.clear()
    _in_force.update(keymap)


def keys_of(id: str) -> tuple[str, ...]:
    """The keys of a command that are in force, as Textual names them."""
    return _in_force.get(id) or BY_ID[id].all_keys


def key_of(id: str) -> str:
    """The name of a command's first key, for sentences. Raises KeyError for an unknown id."""
    return name_of(keys_of(id)[0])


def short_key_of(id: str, *, in_turn: bool = False) -> str:
    """The shortest name of a command's keys, for the bottom line: `F4`, `^G E`; or of its key while
    a turn is selected."""
    keys = (BY_ID[id].turn_key,) if in_turn else keys_of(id)
    return min((name_of(key).replace("Ctrl+", "^") for key in keys), key=len)


def with_keys(text: str) -> str:
    """A sentence in which each `{chat.stop}` is replaced by the name of that command's key. Braces
    around anything else stay: they may come from a model or a server."""
    return KEY_PLACEHOLDER.sub(lambda m: key_of(m[1]) if m[1] in BY_ID else m[0], text)


def name_of(key: str) -> str:
    """A key as keyboards label it. `leader v` becomes the name of the leader's key, then V."""
    leader, _, second = key.rpartition(" ")
    if leader != LEADER:
        return _key_name(key)
    name = _key_name(second)
    return f"{_key_name(keys_of('app.leader')[0])} {name.upper() if len(name) == 1 else name}"


def _key_name(key: str) -> str:
    *modifiers, last = key.split("+")
    name = _NAMES.get(last) or _character(last) or last.capitalize()
    if len(last) == 1 and not modifiers:
        name = last
    return "+".join([*(modifier.capitalize() for modifier in modifiers), name])


def _character(name: str) -> str | None:
    """The character of a Unicode name with underscores, such as left_parenthesis."""
    try:
        found = unicodedata.lookup(name.replace("_than_", "-than_").replace("_", " "))
    except KeyError:
        return None
    # Some keys have the names of control characters, and one that of the space.
    return found if found.isprintable() and found != " " else None


def commands_of(*scopes: Scope) -> list[Command]:
    """The commands that hold in any of these scopes."""
    return [command for command in COMMANDS if not set(scopes).isdisjoint(command.scopes)]

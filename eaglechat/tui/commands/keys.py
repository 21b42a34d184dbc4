"""The keys in force, their names, Textual's bindings of them, and `[keys]` of config.toml, which
gives commands other ones."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from textual import events
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character
from textual.screen import Screen
from textual.widget import Widget

from eaglechat.settings.config_file import Problem
from eaglechat.tui.commands.table import (
    BY_ID,
    COMMANDS,
    LEADER,
    PLACES,
    Command,
    Keymap,
    Scope,
    commands_of,
)

ENTER, TAB = "Enter", "Tab"
"""Keys of buttons, fields and lists, which cannot be changed."""

SEARCH_KEY = "space"
"""Behind the leader's key: the search."""

_NAMES = {
    "escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "up": "↑", "down": "↓", "left": "←",
    "right": "→",
}  # fmt: skip
_RENAMED = {
    "plus": "+",
    "minus": "-",
    "slash": "/",
    "backslash": "\\",
    "at": "@",
    "underscore": "_",
}
"""The characters of keys that Textual names otherwise than Unicode does."""

KEY_PLACEHOLDER = re.compile(r"\{([a-z_]+\.[a-z_]+)\}")

_in_force: dict[str, tuple[str, ...]] = {}


def use(keymap: Keymap) -> None:
    """Put other keys in force, for the whole process."""
    _in_force.clear()
    _in_force.update(keymap)


def keys_of(id: str) -> tuple[str, ...]:
    """The keys of a command that are in force, as Textual names them."""
    return _in_force.get(id) or BY_ID[id].keys


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
    typed = (character_of(last) or "").strip()
    name = _NAMES.get(last) or (typed.upper() if modifiers else typed) or last.capitalize()
    return "+".join([*(modifier.capitalize() for modifier in modifiers), name])


def character_of(key: str) -> str | None:
    """What a key types in a text field; None if it types nothing."""
    typed = _RENAMED.get(key) or key_to_character(key)
    return typed if typed and typed.isprintable() else None


_PRIORITY_SUFFIX = "!"
"""Ends the id of a command's priority binding, which gets its keys before the focused widget."""
_NO_KEY = "unbound"


def bindings_of(*scopes: Scope) -> list[BindingType]:
    """The BINDINGS of a screen or widget, with the keys as shipped."""
    return [
        Binding(joined, command.call(), show=False, priority=priority, id=id)
        for command in commands_of(*scopes)
        if command.keys
        for id, joined, priority in _parted(command, command.keys)
    ]


def moves(actions: Mapping[str, str], *, priority: bool = False) -> list[BindingType]:
    """The BINDINGS of arrow keys and the like, by their keys. They are no commands: they move as in
    any other program, and `[keys]` does not change them."""
    return [Binding(key, action, show=False, priority=priority) for key, action in actions.items()]


def textual_keymap(keymap: Keymap) -> dict[str, str]:
    """The argument of `App.set_keymap` that puts other keys in force."""
    return {
        binding_id: joined
        for id, keys in keymap.items()
        for binding_id, joined, _ in _parted(BY_ID[id], keys)
    }


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


async def run_own_key(field: Widget, event: events.Key) -> None:
    """Do what a key of a text field does when it comes, as the field does with letters. Textual
    does it once the key has bubbled to the app: after letters that came behind it."""
    own = field.screen.active_bindings.get(event.key)
    if own is None or own.node is not field or not own.enabled or event.is_printable:
        return
    # Without a selection the field copies nothing, and the key is the screen's.
    if await field.app.run_action(own.binding.action, own.node):
        event.prevent_default().stop()


@dataclass(frozen=True)
class Active:
    """A command that holds now, the widget, screen or app it belongs to, and its keys in the order
    of the table: sentences name the first."""

    command: Command
    node: DOMNode
    keys: tuple[str, ...]
    enabled: bool


def active_commands(screen: Screen[Any]) -> list[Active]:
    """The commands that hold now: of the focused widget, then of the screen, then of the app."""
    bound = {
        key: (command, active)
        for key, active in screen.active_bindings.items()
        if (command := BY_ID.get((active.binding.id or "").removesuffix(_PRIORITY_SUFFIX)))
    }
    found: dict[str, Active] = {}
    for command, active in bound.values():
        keys = (key for key in keys_of(command.id) if key in bound and bound[key][0] is command)
        found[command.id] = Active(command, active.node, tuple(keys), active.enabled)
    # A dialog hides the bindings of the app, although those with priority work.
    for command in commands_of("app"):
        found.setdefault(command.id, Active(command, screen.app, keys_of(command.id), True))
    return sorted(
        found.values(),
        key=lambda one: (-len(one.node.ancestors_with_self), COMMANDS.index(one.command)),
    )


# Other keys for commands

_MODIFIERS = ("ctrl", "alt", "shift")
_NAMED = {key.value for key in Keys if re.fullmatch(r"\w+", key.value)}
"""Keys that write no character, as Textual names them."""
_SHORT = {
    "esc": "escape", "return": "enter", "del": "delete", "ins": "insert", "pgup": "pageup",
    "pgdn": "pagedown",
}  # fmt: skip
_TAKEN = {
    "ctrl+i": "Tab",
    "ctrl+m": "Enter",
    "ctrl+h": "Backspace",
    "ctrl+left_square_bracket": "Esc",
}
"""Keys for which terminals send the same as for the other."""
_NOTHING_TYPED: set[Scope] = {"ask", "downloads", "inside", "compare"}


def read_keymap(
    given: Mapping[str, str | tuple[str, ...]], file: Path
) -> tuple[Keymap, list[Problem]]:
    """The keys that can be put in force, and a problem for each other one; `file` has them."""
    keymap: dict[str, tuple[str, ...]] = {}
    reasons: dict[str, str] = {}
    for id, keys in given.items():
        try:
            keymap[id] = _keys(id, (keys,) if isinstance(keys, str) else keys)
        except ValueError as error:
            reasons[id] = str(error)
    # Clashes are looked for when all keys are read, as both commands may have other keys. A
    # command that is put back to its own keys may clash again.
    while clash := next(clashes(keymap), None):
        key, one, other = clash
        moved, first = (other, one) if other in keymap else (one, other)
        del keymap[moved]
        reasons[moved] = f"{key} belongs to {first} on the same screen"
    return keymap, [
        Problem(file, f"keys.{id}", f"{reason}; the command keeps its own keys")
        if id in BY_ID
        else Problem(file, f"keys.{id}", f"{reason}, and is ignored")
        for id, reason in reasons.items()
    ]


def clashes(keymap: Keymap) -> Iterator[tuple[str, str, str]]:
    """Each key that two commands have in one place, with their ids."""
    for place in PLACES:
        owners: dict[str, str] = {}
        for command in COMMANDS:
            if place.isdisjoint(command.scopes):
                continue
            for key in keymap.get(command.id, command.keys):
                owner = owners.setdefault(key, command.id)
                if owner != command.id:
                    yield key, owner, command.id


def _keys(id: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    """The keys as Textual names them. Raises ValueError, which says what is wrong."""
    command = BY_ID.get(id)
    if command is None:
        near = get_close_matches(id, BY_ID, 1, cutoff=0.4)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"is not a command{hint}")
    if not command.keys:
        raise ValueError("takes a value and cannot have a key; the search has it")
    if not keys:
        raise ValueError("needs at least one key")
    return tuple(_key_of_command(command, key) for key in keys)


def _key_of_command(command: Command, written: str) -> str:
    leader, _, second = written.strip().rpartition(" ")
    key = _key(second or written)
    if leader:
        if leader.strip().casefold() != LEADER:
            raise ValueError(f"{written}: two keys start with {LEADER}, as in “{LEADER} v”")
        if command.id == "app.leader":
            raise ValueError(f"{written}: the leader cannot follow itself")
        return f"{LEADER} {key}"
    if character_of(key) and not _NOTHING_TYPED.issuperset(command.scopes):
        raise ValueError(
            f"{written} types text; add ctrl or alt, or use a function key or “{LEADER} {written}”"
        )
    return key


def _key(written: str) -> str:
    """A key as Textual names it. Raises ValueError."""
    is_plus = written == "+" or written.endswith("++")
    *before, last = [*filter(None, written.split("+")), "+"] if is_plus else written.split("+")
    modifiers = [modifier.casefold() for modifier in before]
    name = _base(last if not modifiers else last.casefold())
    if not name or any(modifier not in _MODIFIERS for modifier in modifiers):
        raise ValueError(f"{written} is not a key; write one as ctrl+x, alt+up, f5 or ?")
    key = "+".join([*(one for one in _MODIFIERS if one in modifiers), name])
    if key in _TAKEN:
        raise ValueError(f"{written} cannot be told from {_TAKEN[key]} in a terminal")
    return key


def _base(name: str) -> str:
    """A key without modifiers; empty if there is none."""
    if len(name) == 1 and name.isalnum():
        return name
    if len(name) == 1 and name.isprintable() and name != " ":
        named = unicodedata.name(name, "").lower().replace("-", "_").replace(" ", "_")
        return KEY_NAME_REPLACEMENTS.get(named, named)
    lower = _SHORT.get(name.casefold(), name.casefold())
    return lower if lower in _NAMED or character_of(lower) in {*string.punctuation} else ""

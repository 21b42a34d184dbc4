"""Reads `[keys]` of config.toml, which gives commands other keys."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from textual.keys import KEY_NAME_REPLACEMENTS, Keys

from eaglechat.settings.config_file import Problem
from eaglechat.tui.commands.keys import character_of
from eaglechat.tui.commands.table import BY_ID, COMMANDS, LEADER, PLACES, Command, Keymap, Scope

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

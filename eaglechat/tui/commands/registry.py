"""All commands, and the names of their keys in force."""

from __future__ import annotations

import re
from collections.abc import Mapping

from eaglechat.tui.commands.chatting import BENCH, CHAT, CONTROLS
from eaglechat.tui.commands.command import Command, Scope
from eaglechat.tui.commands.everywhere import APP, DIALOGS, LISTS
from eaglechat.tui.commands.key_names import key_name
from eaglechat.tui.commands.tables.branching import READING, TURNS
from eaglechat.tui.commands.tables.keeping import KEEPING
from eaglechat.tui.commands.tables.models import DOWNLOADS, MENU
from eaglechat.tui.commands.tables.writing import PROMPT, WRITING

COMMANDS: tuple[Command, ...] = (
    *APP, *MENU, *DOWNLOADS, *LISTS, *DIALOGS, *CHAT, *WRITING, *TURNS, *READING, *CONTROLS,
    *PROMPT, *BENCH, *KEEPING,
)  # fmt: skip
"""In the order in which the bottom line, the help and the documentation have them."""

BY_ID: Mapping[str, Command] = {command.id: command for command in COMMANDS}

Keymap = Mapping[str, tuple[str, ...]]
"""Keys by the id of a command, in place of those it is shipped with."""

KEY_PLACEHOLDER = re.compile(r"\{([a-z_]+\.[a-z_]+)\}")

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
    """A sentence with each `{chat.stop}` in it replaced by the name of that command's key. Braces
    around anything else stay: they may come from a model or a server."""
    return KEY_PLACEHOLDER.sub(lambda m: key_of(m[1]) if m[1] in BY_ID else m[0], text)


def name_of(key: str) -> str:
    """A key as the keyboard writes it."""
    return key_name(key, keys_of("app.leader")[0])


def commands_of(*scopes: Scope) -> list[Command]:
    """The commands of some screens or widgets."""
    return [command for command in COMMANDS if not set(scopes).isdisjoint(command.scopes)]

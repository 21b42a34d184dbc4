"""Every command has a name, a sentence and keys; a key has one meaning, and a name in one place."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import eaglechat
from eaglechat.tui.commands.keys import (
    KEY_PLACEHOLDER,
    clashes,
    key_of,
    name_of,
    read_keymap,
    use,
    with_keys,
)
from eaglechat.tui.commands.table import COMMANDS, LEADER, PLACES, Command, Scope

SOURCE = Path(eaglechat.__file__).parent
KEY_NAME = re.compile(
    r"\b(Ctrl|Alt|Shift|Cmd|Option)[+-]|\bF([1-9]|1[0-2])\b|\b(Esc|Escape|Enter|PgUp|PgDn)\b|\^[A-Z]\b"
)
OF_THE_SHELL = {"__main__.py", "cli", "train", "engine"}
"""There Ctrl+C is the terminal's, not the app's."""


def test_ids_and_titles_are_unique() -> None:
    for names in (
        [command.id for command in COMMANDS],
        [(command.title, command.scopes) for command in COMMANDS],
    ):
        assert len(names) == len(set(names))


def test_every_command_is_complete() -> None:
    for command in COMMANDS:
        is_complete(command)


def is_complete(command: Command) -> None:
    assert re.fullmatch(r"[a-z]+\.[a-z_]+", command.id)
    assert command.scopes
    assert command.help[0].isupper() or command.argument
    assert not command.help.endswith(".")
    assert command.keys or command.argument
    for key in command.keys[:1]:
        assert not re.fullmatch(r"f\d+", key), f"{key} is no key of every laptop"
        assert "alt+" not in key
        assert key not in {"ctrl+i", "ctrl+m", "ctrl+h"}


def test_each_scope_has_commands_and_a_place() -> None:
    held = {scope for command in COMMANDS for scope in command.scopes}
    assert held == set(get_args(Scope)) == set().union(*PLACES)


def test_no_two_commands_have_a_key_in_one_place() -> None:
    assert list(clashes({})) == []


def test_a_key_means_the_same_on_every_screen() -> None:
    meanings = defaultdict(set)
    for command in COMMANDS:
        for key in command.keys:
            meanings[key].add(command.verb)
        if command.turn_key:
            # The letter of a selected turn is that behind the leader's key.
            meanings[f"leader {command.turn_key}"].add(command.verb)
    plain = {"left", "right", "home", "end", "up", "down"}
    several = {
        key: verbs
        for key, verbs in meanings.items()
        if len(verbs) > 1 and key.removeprefix("leader ") not in plain
    }
    assert several == {"escape": {"stop", "back"}, "enter": {"send", "choose", "use"}}


def test_what_is_called_alike_has_the_same_keys() -> None:
    keys = defaultdict(set)
    for command in COMMANDS:
        if command.keys and "list" not in command.scopes:
            keys[command.verb].add(command.keys)
    assert {verb for verb, sets in keys.items() if len(sets) > 1} == set()


def test_the_prompts_own_keys_stay_the_prompts() -> None:
    of_text = {f"ctrl+{letter}" for letter in "akuwzyxcvdf"}
    chat = [command for command in COMMANDS if {"chat", "app", "prompt"} & set(command.scopes)]
    assert of_text.isdisjoint(key for command in chat for key in command.keys)


def test_key_names_stand_nowhere_but_in_the_registry() -> None:
    found = [f"{file.name}: {text}" for file, text in _texts() if KEY_NAME.search(text)]
    assert found == []


def test_a_sentence_names_the_key_in_force() -> None:
    assert with_keys("{chat.stop} stops it") == "Esc stops it"
    assert key_of("chat.view") == "Ctrl+G V"
    try:
        use({"chat.stop": ("ctrl+x", "f4"), "app.leader": ("ctrl+k",)})
        assert with_keys("{chat.stop} stops it") == "Ctrl+X stops it"
        assert key_of("chat.view") == "Ctrl+K V"
    finally:
        use({})
    assert with_keys("{chat.dance}") == "{chat.dance}"


def test_sentences_name_only_commands_that_exist() -> None:
    named = {match[1] for _, text in _texts() for match in KEY_PLACEHOLDER.finditer(text)}
    assert len(named) > 10
    assert named <= {command.id for command in COMMANDS}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("ctrl+n", "Ctrl+N"), ("f12", "F12"), ("alt+up", "Alt+↑"), ("escape", "Esc"),
        ("leader comma", "Ctrl+G ,"), (f"{LEADER} plus", "Ctrl+G +"), ("end", "End"), ("x", "x"),
        ("shift+enter", "Shift+Enter"),
    ],
)  # fmt: skip
def test_keys_are_named_as_the_keyboard_has_them(key: str, name: str) -> None:
    assert name_of(key) == name


def test_every_key_shipped_could_be_written_by_a_user() -> None:
    for command in COMMANDS:
        keys = tuple(key for key in command.keys if "\\" not in key)
        if keys:
            assert read_keymap({command.id: keys}, Path("c")) == ({command.id: keys}, [])


def _texts() -> Iterator[tuple[Path, str]]:
    """Every text in the source that the user may come to see, or a reader of the code."""
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).parts
        if parts[0] in OF_THE_SHELL or parts[:2] == ("tui", "commands"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield file, node.value

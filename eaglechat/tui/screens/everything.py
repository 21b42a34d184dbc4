"""What one search finds: commands with their values, settings with theirs, and the words of the
help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import starmap
from typing import Any, cast

from textual.app import App
from textual.screen import Screen

from eaglechat.settings.description import SettingDoc, WrongValueError, describe, parse, written
from eaglechat.tui.commands.bindings import Active, active_commands
from eaglechat.tui.commands.command import Command, Scope
from eaglechat.tui.commands.registry import name_of
from eaglechat.tui.commands.search import Entry, Run, ranked
from eaglechat.tui.commands.table import COMMANDS
from eaglechat.tui.services.services import Services
from eaglechat.words.wording import GLOSSARY

_ELSEWHERE: dict[Scope, str] = {
    "chat": "in a chat",
    "menu": "in the menu",
    "chats": "in the past chats",
    "library": "in the models on this machine",
}


def found(app: App[Any], screen: Screen[Any], query: str) -> list[Entry]:
    """Everything that a query finds from a screen, best first."""
    glossary = starmap(Entry, GLOSSARY)
    held = _held(screen)
    entries = (*_commands(app, held), *_settings(app), *_elsewhere(held), *glossary)
    # A value that is typed may also be one of those that are listed.
    by_name: dict[str, Entry] = {}
    for entry in (*_with_typed_value(app, held, query), *ranked(entries, query)):
        by_name.setdefault(entry.name, entry)
    return [*by_name.values()]


def _held(screen: Screen[Any]) -> list[Active]:
    """The commands that hold on a screen, also those without a key."""
    held = active_commands(screen)
    if any(active.command.scopes == ("chat",) for active in held):
        without = [one for one in COMMANDS if "chat" in one.scopes and not one.all_keys]
        held += [Active(command, screen, (), True) for command in without]
    return held


def _commands(app: App[Any], held: Sequence[Active]) -> Iterator[Entry]:
    """The commands, and each word that one takes as its value."""
    for active in held:
        command, argument = active.command, active.command.argument
        names = (*command.words, *filter(None, [command.slash_name]))
        if argument is None or argument.is_optional:
            yield Entry(
                command.title, command.help, names, keys_in_words(active), run_of(app, active)
            )
        elif argument.kind is not None:
            yield Entry(command.title, f"{argument.accepted_values}: {command.help}", names)
        for word in argument.words if argument is not None else ():
            name = f"{command.title}: {word}"
            yield Entry(name, command.help, command.words, run=run_of(app, active, word))


def keys_in_words(active: Active) -> str:
    """The first two keys of a command."""
    return ", ".join(map(name_of, active.keys[:2]))


def run_of(app: App[Any], active: Active, value: int | float | str | None = None) -> Run:
    if not active.enabled:
        return partial(app.notify, f"{active.command.title}: there is nothing to do now.")
    return partial(app.run_action, active.command.call(value), active.node)


def _with_typed_value(app: App[Any], held: Sequence[Active], query: str) -> Iterator[Entry]:
    """The commands and settings whose value is typed behind their name: `temp 0.8`."""
    *name, typed = query.replace(":", " ").split() or [""]
    if not name:
        return
    for active in held:
        command, argument = active.command, active.command.argument
        if argument is None or argument.kind is None or not _is_called(command, name):
            continue
        try:
            value = argument.parse(typed)
        except ValueError:
            yield Entry(f"{command.title} takes {argument.accepted_values}", command.help)
        else:
            shown = f"{command.title}: {value}"
            yield Entry(shown, command.help, run=run_of(app, active, value))
    for doc in describe():
        if " ".join(name) in (doc.key, doc.name) and not doc.choices and doc.kind is not bool:
            try:
                value = parse(doc, typed)
            except WrongValueError:
                continue
            yield _setting(app, doc, value)


def _is_called(command: Command, name: Sequence[str]) -> bool:
    called = (command.title, command.slash_name or "")
    return any(one.startswith("_".join(name).casefold()) for one in called)


def _settings(app: App[Any]) -> Iterator[Entry]:
    """The settings: each value of those that have few, and the others by their name."""
    for doc in describe():
        values: Sequence[Any] = doc.choices
        if doc.kind is bool:
            values = (True, False)
        elif doc.name == "interface.theme":
            values = sorted(app.available_themes)
        for value in values:
            yield _setting(app, doc, value)
        if not values:
            open_settings = partial(app.run_action, "app.settings")
            yield Entry(doc.name, doc.description, ("setting",), "setting", open_settings)


def _setting(app: App[Any], doc: SettingDoc, value: Any) -> Entry:
    services: Services = cast(Any, app).services
    current = getattr(getattr(services.settings.current, doc.table), doc.key)
    shown = ("on" if value else "off") if doc.kind is bool else written(value)
    return Entry(
        f"{doc.name}: {shown}",
        doc.description,
        ("setting",),
        "as now" if value == current else "setting",
        partial(services.settings.change, doc.table, doc.key, value),
    )


def _elsewhere(held: Sequence[Active]) -> Iterator[Entry]:
    """The commands of other screens, which say where they are."""
    ids = {active.command.id for active in held}
    for command in COMMANDS:
        where = next((_ELSEWHERE[one] for one in command.scopes if one in _ELSEWHERE), None)
        if where is not None and command.id not in ids:
            yield Entry(f"{command.title} ({where})", command.help, command.words)

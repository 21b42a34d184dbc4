"""What the palette, the list behind the leader's key and the help search: commands with their
values, settings with theirs, and the words of the help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import starmap
from typing import Any, cast

from textual.app import App
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.screen import Screen

from eaglechat.settings.description import SettingDoc, WrongValueError, describe, parse, written
from eaglechat.tui.commands.bindings import Active, active_commands
from eaglechat.tui.commands.command import Command, Scope
from eaglechat.tui.commands.registry import name_of
from eaglechat.tui.commands.search import Entry, ranked
from eaglechat.tui.commands.table import COMMANDS
from eaglechat.tui.services.services import Services
from eaglechat.words.wording import GLOSSARY

Run = Callable[[], object]

_ELSEWHERE: dict[Scope, str] = {
    "chat": "in a chat",
    "menu": "in the menu",
    "chats": "in the past chats",
    "library": "in the models on this machine",
}


class EverythingProvider(Provider):
    """The palette lists the commands, and searches everything."""

    async def discover(self) -> Hits:
        for entry in _commands(self.app, self.screen):
            if entry.run is not None:
                yield DiscoveryHit(entry.name, entry.run, help=_below(entry))

    async def search(self, query: str) -> Hits:
        for place, (rank, entry) in enumerate(found(self.app, self.screen, query)):
            # The palette sorts by the score alone: equal ones would lose their order.
            score = rank - place / 10_000
            yield Hit(score, entry.name, entry.run or _nothing, help=_below(entry))


def found(app: App[Any], screen: Screen[Any], query: str) -> list[tuple[float, Entry]]:
    """Everything that a query finds from a screen, best first."""
    glossary = starmap(Entry, GLOSSARY)
    entries = (*_commands(app, screen), *_settings(app), *_elsewhere(app, screen), *glossary)
    typed = ((1.0, entry) for entry in _with_typed_value(app, screen, query))
    # A value that is typed may also be one of those that are listed.
    by_name: dict[str, tuple[float, Entry]] = {}
    for rank, entry in (*typed, *ranked(entries, query)):
        by_name.setdefault(entry.name, (rank, entry))
    return [*by_name.values()]


def _commands(app: App[Any], screen: Screen[Any]) -> Iterator[Entry]:
    """The commands that hold on a screen, and each word that one takes as its value."""
    for active in _held(app, screen):
        command, argument = active.command, active.command.argument
        names = (*command.words, *filter(None, [command.slash_name]))
        mark = keys_in_words(active)
        if argument is None or argument.is_optional:
            yield Entry(command.title, command.help, names, mark, run_of(app, active))
        for word in argument.words if argument is not None else ():
            name = f"{command.title}: {word}"
            yield Entry(name, command.help, command.words, "", run_of(app, active, word))
        if argument is not None and argument.kind is not None:
            sentence = f"{argument.accepted_values}: {command.help}"
            yield Entry(command.title, sentence, names, "", _explain(app, command))


def _held(app: App[Any], screen: Screen[Any]) -> Iterator[Active]:
    """The commands that hold on a screen, also those without a key."""
    held = active_commands(screen)
    yield from held
    if any(active.command.scopes == ("chat",) for active in held):
        for command in COMMANDS:
            if "chat" in command.scopes and not command.all_keys:
                yield Active(command, screen, (), True)


def keys_in_words(active: Active) -> str:
    """The first two keys of a command."""
    return ", ".join(map(name_of, active.keys[:2]))


def run_of(app: App[Any], active: Active, value: int | float | str | None = None) -> Run:
    if not active.enabled:
        return partial(app.notify, f"{active.command.title}: there is nothing to do now.")
    return partial(app.run_action, active.command.call(value), active.node)


def _explain(app: App[Any], command: Command) -> Run:
    span = command.argument.accepted_values if command.argument is not None else ""
    return partial(app.notify, f"Type {command.title} followed by {span}.")


def _with_typed_value(app: App[Any], screen: Screen[Any], query: str) -> Iterator[Entry]:
    """The commands and settings whose value is typed behind their name: `temp 0.8`."""
    *name, typed = query.replace(":", " ").split() or [""]
    if not name:
        return
    for active in _held(app, screen):
        command, argument = active.command, active.command.argument
        if argument is None or argument.kind is None or not _is_called(command, name):
            continue
        try:
            value = argument.parse(typed)
        except ValueError:
            takes = f"{command.title} takes {argument.accepted_values}"
            yield Entry(takes, command.help, run=_explain(app, command))
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


def _elsewhere(app: App[Any], screen: Screen[Any]) -> Iterator[Entry]:
    """The commands of other screens, which say where they are."""
    held = {active.command.id for active in _held(app, screen)}
    for command in COMMANDS:
        where = next((_ELSEWHERE[one] for one in command.scopes if one in _ELSEWHERE), None)
        if where is not None and command.id not in held:
            say = partial(app.notify, f"“{command.title}” can be chosen {where}.")
            name = f"{command.title} ({where})"
            yield Entry(name, command.help, command.words, "", say)


def _below(entry: Entry) -> str:
    return f"{entry.mark}  {entry.sentence}" if entry.mark else entry.sentence


def _nothing() -> None:
    """An entry that is only read."""

"""The help, which is also the search: every key of a screen, the words of the app, and what typing
finds: commands with their values, settings with theirs, and those words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast, get_args

from rich.table import Table
from rich.text import Text
from textual import on
from textual.app import App
from textual.screen import Screen
from textual.widgets import Input, OptionList

from eaglechat.settings.description import describe
from eaglechat.tui.commands.keys import Active, active_commands, name_of
from eaglechat.tui.commands.table import COMMANDS, Group, Scope
from eaglechat.tui.screens.dialogs import ListDialog
from eaglechat.tui.services.services import Services
from eaglechat.words.wording import GLOSSARY

TERM_CELLS = 16
"""Cells of the first column."""
_NO_GROUP, _WORDS = "Keys", "Words"
_ELSEWHERE: dict[Scope, str] = {
    "chat": "in a chat",
    "menu": "in the menu",
    "chats": "in the past chats",
    "library": "in the models on this machine",
}


@dataclass(frozen=True)
class Entry:
    """Something that can be found."""

    name: str
    sentence: str
    words: tuple[str, ...] = ()
    """What else it is called."""
    mark: str = ""
    """Its key, or a note."""
    run: Callable[[], object] | None = None
    """What choosing it does; None if it is only read."""
    group: str = ""
    """Under which it stands before anything is typed; empty if only typing finds it."""


class HelpScreen(ListDialog[Callable[[], object], Entry]):
    """The active commands of a screen with their keys, and a glossary. Dismisses with a function
    that runs what was chosen."""

    HEADING = "Help"
    PLACEHOLDER = "search keys, commands, settings and words"

    def __init__(self, about: Screen[Any], typed: str = "") -> None:
        """The line begins with `typed`."""
        super().__init__()
        self._about, self._typed = about, typed
        self._entries: list[Entry] = []

    def on_mount(self) -> None:
        self._entries = [*entries(self.app, self._about)]
        self.words.value = self._typed
        self._list()

    @on(Input.Changed)
    def _list(self) -> None:
        query = self.words.value
        if query.strip():
            self.fill((one, _row(one, one.name)) for one in ranked(self._entries, query))
        else:
            self.fill(self._in_groups())
        self._say_what_enter_does()

    def _in_groups(self) -> Iterator[tuple[Entry | None, Text | Table]]:
        """The commands, in the groups of the leader's columns, those without one first; then the
        words."""
        for group in (_NO_GROUP, *get_args(Group), _WORDS):
            held = [one for one in self._entries if one.group == group]
            if held:
                yield None, Text(group, "bold")
            for one in held:
                yield one, _row(one, one.name if group == _WORDS else "")

    @on(OptionList.OptionHighlighted)
    def _say_what_enter_does(self) -> None:
        runs = self.highlighted is not None and self.highlighted.run is not None
        said = "{list.choose} runs it, {dialog.back} closes" if runs else "{dialog.back} closes"
        self.frame.offer(said)

    def choose(self, thing: Entry | None) -> None:
        if thing is not None and thing.run is not None:
            self.dismiss(thing.run)


def _row(entry: Entry, name: str) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=TERM_CELLS, style="bold")
    grid.add_column(ratio=1)
    first = entry.mark or (name if len(name) <= TERM_CELLS else "")
    before = f"{name}: " if name and name != first else ""
    grid.add_row(Text(first), Text.assemble((before, "bold"), entry.sentence))
    return grid


def entries(app: App[Any], screen: Screen[Any]) -> list[Entry]:
    """The commands that hold on a screen, also those without a key, the settings, and the words."""
    held = active_commands(screen)
    if any(active.command.scopes == ("chat",) for active in held):
        without = [one for one in COMMANDS if "chat" in one.scopes and not one.keys]
        held += [Active(command, screen, (), True) for command in without]
    glossary = (Entry(word, meaning, group=_WORDS) for word, meaning in GLOSSARY)
    return [*_commands(app, held), *_settings(app), *_elsewhere(held), *glossary]


def _commands(app: App[Any], held: Sequence[Active]) -> Iterator[Entry]:
    """The commands, and each word that one takes as its value."""
    for active in held:
        command, argument = active.command, active.command.argument
        names = (*command.words, *filter(None, [command.slash_name]))
        if argument is None or argument.is_optional:
            keys, run = ", ".join(map(name_of, active.keys[:2])), _run_of(app, active)
            group = command.group or _NO_GROUP
            yield Entry(command.title, command.help, names, keys, run, group)
        elif argument.setting is not None:
            yield Entry(command.title, f"{argument.accepted_values}: {command.help}", names)
        for word in argument.words if argument is not None else ():
            name = f"{command.title}: {word}"
            yield Entry(name, command.help, command.words, run=_run_of(app, active, word))


def _elsewhere(held: Sequence[Active]) -> Iterator[Entry]:
    """The commands of other screens, which say where they are."""
    ids = {active.command.id for active in held}
    for command in COMMANDS:
        where = next((_ELSEWHERE[one] for one in command.scopes if one in _ELSEWHERE), None)
        if where is not None and command.id not in ids:
            yield Entry(f"{command.title} ({where})", command.help, command.words)


def _run_of(
    app: App[Any], active: Active, value: int | float | str | None = None
) -> Callable[[], object]:
    if not active.enabled:
        return partial(app.notify, f"{active.command.title}: there is nothing to do now.")
    return partial(app.run_action, active.command.call(value), active.node)


def _settings(app: App[Any]) -> Iterator[Entry]:
    """The settings: each word of those that have few, and the others by their name."""
    services: Services = cast(Any, app).services
    settings = services.settings
    for doc in describe():
        words = settings.choices(doc)
        for word in words:
            mark = "as now" if word == settings.value(doc) else "setting"
            choose = partial(settings.choose, doc, word)
            yield Entry(f"{doc.name}: {word}", doc.description, ("setting",), mark, choose)
        if not words:
            show = partial(app.run_action, f"app.settings({doc.name!r})")
            yield Entry(doc.name, doc.description, ("setting",), "setting", show)


def ranked(entries: Iterable[Entry], query: str) -> list[Entry]:
    """The entries that have every word of the query, best first: those with the words in their
    name, then in what else they are called, then in their sentence."""
    words = query.casefold().replace(":", " ").split()
    ranks = [(rank, entry) for entry in entries if words and (rank := _rank(entry, words))]
    return [entry for _, entry in sorted(ranks, key=lambda one: -one[0])]


def _rank(entry: Entry, words: list[str]) -> int:
    name = entry.name.casefold()
    in_name, called = _words_of(name), {word.casefold() for word in entry.words}

    def begin(among: set[str]) -> bool:
        return all(any(one.startswith(word) for one in among) for word in words)

    from_the_best = (
        " ".join(words) == name.replace(":", ""),
        in_name.issuperset(words),
        called.issuperset(words),
        begin(in_name),
        begin(in_name | called),
        all(word in name for word in words),
        begin(in_name | called | _words_of(entry.sentence)),
    )
    return next((7 - place for place, holds in enumerate(from_the_best) if holds), 0)


def _words_of(text: str) -> set[str]:
    """The words of a text, and their parts: `eagle-light` is also `eagle` and `light`."""
    whole = re.findall(r"[\w.+#-]+", text.casefold())
    return {word for one in whole for word in (one, *re.split(r"[._-]", one)) if word}

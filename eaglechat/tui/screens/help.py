"""The help, which is also the search: every key of a screen, the words of the app, and what typing
finds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, get_args

from rich.table import Table
from rich.text import Text
from textual import on
from textual.screen import Screen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from eaglechat.tui.commands.bindings import active_commands
from eaglechat.tui.commands.command import Group
from eaglechat.tui.commands.search import Entry
from eaglechat.tui.screens.everything import found, keys_in_words, run_of
from eaglechat.tui.screens.list_dialog import ListDialog
from eaglechat.words.wording import GLOSSARY

TERM_CELLS = 16
"""Cells of the first column."""
_NO_GROUP = "Keys"


class HelpScreen(ListDialog[Entry]):
    """The active commands of a screen with their keys, and a glossary. Dismisses with what was
    chosen to be run."""

    HEADING = "Help"
    PLACEHOLDER = "search keys, commands, settings and words"

    def __init__(self, about: Screen[Any], typed: str = "") -> None:
        """The line begins with `typed`."""
        super().__init__()
        self._about, self._typed = about, typed
        self.entries: list[Entry] = []
        """What is listed."""

    def on_mount(self) -> None:
        self.words.value = self._typed
        self._list()

    @on(Input.Changed)
    def _list(self) -> None:
        query = self.words.value
        groups: dict[str, list[Entry]] = self._groups()
        if query.strip():
            groups = {"": found(self.app, self._about, query)}
        self.entries = [entry for group in groups.values() for entry in group]
        self.rows.clear_options()
        self.rows.add_options(_options(groups))
        self.rows.action_first()
        self._say_what_enter_does()

    def _groups(self) -> dict[str, list[Entry]]:
        """The commands, in the groups of the leader's columns, those without one first; then the
        words."""
        groups: dict[str, list[Entry]] = {name: [] for name in (_NO_GROUP, *get_args(Group))}
        for active in active_commands(self._about):
            keys, run = keys_in_words(active), run_of(self.app, active)
            entry = Entry("", active.command.help, mark=keys, run=run)
            groups[active.command.group or _NO_GROUP].append(entry)
        groups["Words"] = [Entry("", meaning, mark=word) for word, meaning in GLOSSARY]
        return groups

    @on(OptionList.OptionHighlighted)
    def _say_what_enter_does(self) -> None:
        chosen = self.words.chosen
        runs = chosen is not None and self.entries[chosen].run is not None
        said = "{list.choose} runs it, {dialog.back} closes" if runs else "{dialog.back} closes"
        self.offer(said)

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _choose(self) -> None:
        chosen = self.words.chosen
        if chosen is not None and self.entries[chosen].run is not None:
            self.dismiss(self.entries[chosen])


def _options(groups: dict[str, list[Entry]]) -> Iterator[Option]:
    """A heading for each group that has entries and a name, and its entries below it."""
    places = itertools.count()
    for name, entries in groups.items():
        if name and entries:
            yield Option(Text(name, "bold"), disabled=True)
        yield from (_option(next(places), entry) for entry in entries)


def _option(place: int, entry: Entry) -> Option:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=TERM_CELLS, style="bold")
    grid.add_column(ratio=1)
    first = entry.mark or (entry.name if len(entry.name) <= TERM_CELLS else "")
    name = f"{entry.name}: " if entry.name and entry.name != first else ""
    grid.add_row(Text(first), Text.assemble((name, "bold"), entry.sentence))
    return Option(grid, id=str(place))

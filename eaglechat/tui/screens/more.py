"""The columns behind the leader's key: the commands that a second key runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from textual.app import ComposeResult
from textual.containers import Grid, Vertical
from textual.content import Content
from textual.widgets import OptionList, Static

from eaglechat.tui.commands.bindings import Active, active_commands, moves
from eaglechat.tui.commands.command import LEADER, Group
from eaglechat.tui.commands.registry import SEARCH_KEY, key_of, name_of
from eaglechat.tui.screens.base import EagleModal, EagleScreen
from eaglechat.tui.widgets.readouts import MUTED

_AROUND = 8
"""Cells beside the columns: the border, the padding and the scroll bar of the dialog."""
_GAP = 2
"""Cells between columns."""
_SHORT = {"Backspace": "Bksp", "Delete": "Del"}


class Column(OptionList):
    """The commands of a group."""

    BINDINGS = moves({"left": "app.focus_previous", "right": "app.focus_next"})


class MoreScreen(EagleModal[None]):
    """Shows the commands of the screen `about`, below it. The app takes their keys, also before
    this is shown; here one is chosen by the arrows or the mouse."""

    CSS_PATH = "more.tcss"

    def __init__(self, about: EagleScreen[Any], close: Callable[[MoreScreen], None]) -> None:
        super().__init__()
        self.about, self._close = about, close
        held = [one for one in active_commands(about) if one.enabled and _seconds(one)]
        self._groups: dict[Group, list[Active]] = {
            group: [one for one in held if one.command.group == group] for group in get_args(Group)
        }
        self._state = {one.command.id: about.state_of(one.command.id) for one in held}

    def content(self) -> ComposeResult:
        shown = {group: held for group, held in self._groups.items() if held}
        rows = {group: self._rows(held) for group, held in shown.items()}
        widths = [_GAP + max(row.cell_length for row in commands) for commands in rows.values()]
        with Grid(id="columns") as columns:
            fitting = _columns(widths, self.app.size.width - _AROUND)
            columns.styles.grid_size_columns = len(fitting)
            columns.styles.grid_columns = " ".join(map(str, fitting))
            columns.styles.width = sum(fitting)
            for group, commands in rows.items():
                with Vertical(classes="group"):
                    yield Static(group, classes="heading")
                    yield Column(*commands, id=f"group-{group}", compact=True)

    def on_mount(self) -> None:
        self.head(f"{key_of('app.leader')}, then")
        self.offer(f"{name_of(SEARCH_KEY)} searches everything, {{dialog.back}} back")

    def _rows(self, held: list[Active]) -> list[Content]:
        keys = [_named(one) for one in held]
        width = max(map(len, keys))
        return [
            Content.assemble(
                (f"{key:>{width}}", "bold $accent"),
                f"  {one.command.title} ",
                (self._state[one.command.id], f"bold {MUTED}"),
            )
            for key, one in zip(keys, held, strict=True)
        ]

    def chosen_by(self, key: str) -> Active | None:
        held = (one for group in self._groups.values() for one in group)
        return next((one for one in held if key.lower() in _seconds(one)), None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        group = next(g for g in self._groups if event.option_list.id == f"group-{g}")
        chosen = self._groups[group][event.option_index]
        self._close(self)
        self.app.call_next(self.app.run_action, chosen.command.call(), chosen.node)

    def action_back(self) -> None:
        self._close(self)

    def on_unmount(self) -> None:
        self._close(self)


def _columns(widths: list[int], available: int) -> list[int]:
    """The widths of as many columns as fit beside each other. The groups fill them row by row, with
    as many in each row as in the last one, or nearly."""
    for n_rows in range(1, len(widths) + 1):
        count = -(-len(widths) // n_rows)
        columns = [max(widths[place::count]) for place in range(count)]
        if sum(columns) <= available:
            return columns
    return [max(widths, default=0)]


def _seconds(active: Active) -> list[str]:
    """The second keys of a command, after the leader's."""
    return [key.partition(" ")[2] for key in active.keys if key.startswith(f"{LEADER} ")]


def _named(active: Active) -> str:
    name = name_of(_seconds(active)[0])
    return name.upper() if len(name) == 1 else _SHORT.get(name, name)

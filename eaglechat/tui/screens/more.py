"""The columns behind the leader's key: the commands that a second key runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from textual.app import ComposeResult
from textual.containers import Grid
from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from eaglechat.tui.commands.keys import SEARCH_KEY, Active, active_commands, key_of, name_of
from eaglechat.tui.commands.table import LEADER, Group
from eaglechat.tui.screens.base import EagleModal, EagleScreen
from eaglechat.tui.themes import MUTED

_AROUND = 8
"""Cells beside the columns: the border, the padding and the scroll bar of the dialog."""
_GAP = 2
"""Cells between columns."""
_SHORT = {"Backspace": "Bksp", "Delete": "Del"}


class MoreScreen(EagleModal[None]):
    """Shows the commands of the screen `about`, below it. The app takes their keys, also before
    this is shown; here a click chooses one."""

    CSS_PATH = "more.tcss"

    def __init__(self, about: EagleScreen[Any], close: Callable[[MoreScreen], None]) -> None:
        super().__init__()
        self.about, self._close = about, close
        self._held = [one for one in active_commands(about) if one.enabled and _seconds(one)]
        # Of now, as the key that is pressed may change them before they are shown.
        self._columns = [
            _column(group, held, about)
            for group in get_args(Group)
            if (held := [one for one in self._held if one.command.group == group])
        ]

    def content(self) -> ComposeResult:
        widths = [_GAP + max(line.cell_length for line in one.split()) for one in self._columns]
        with Grid(id="columns") as columns:
            fitting = _fitting(widths, self.app.size.width - _AROUND)
            columns.styles.grid_size_columns = len(fitting)
            columns.styles.grid_columns = " ".join(map(str, fitting))
            columns.styles.width = sum(fitting)
            yield from map(Static, self._columns)

    def on_mount(self) -> None:
        self.frame.border_title = f"{key_of('app.leader')}, then"
        self.frame.offer(f"{name_of(SEARCH_KEY)} searches everything, {{dialog.back}} back")

    def chosen_by(self, key: str) -> Active | None:
        return next((one for one in self._held if key.lower() in _seconds(one)), None)

    def action_run(self, id: str) -> None:
        chosen = next(one for one in self._held if one.command.id == id)
        self._close(self)
        self.app.call_next(self.app.run_action, chosen.command.call(), chosen.node)

    def action_back(self) -> None:
        self._close(self)

    def on_unmount(self) -> None:
        self._close(self)


def _column(group: Group, held: list[Active], about: EagleScreen[Any]) -> Content:
    keys = [name_of(_seconds(one)[0]) for one in held]
    keys = [key.upper() if len(key) == 1 else _SHORT.get(key, key) for key in keys]
    width = max(map(len, keys))
    lines = [Content.styled(group, f"bold {MUTED}")]
    for key, one in zip(keys, held, strict=True):
        line = Content.assemble(
            (f"{key:>{width}}", "bold $accent"),
            f"  {one.command.title} ",
            (about.state_of(one.command.id), f"bold {MUTED}"),
        )
        runs = Style.from_meta({"@click": f"screen.run('{one.command.id}')"})
        lines.append(line.stylize(runs))
    return Content("\n").join(lines)


def _fitting(widths: list[int], available: int) -> list[int]:
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

"""Bars on standard error, drawn by rich where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.table import Column

_BAR_CELLS = 16
_AROUND_TEXT_CELLS = 1 + _BAR_CELLS + len(" 100% ") + 1
"""The last column stays free: some terminals begin a line behind it."""
_LEAST_NAME_CELLS = 12


class Bars:
    """A bar for each thing under way. Where the terminal cannot redraw, or there is none, nothing
    is drawn and `live` is False: the caller says in lines what matters."""

    def __init__(self, stream: TextIO | None = None, *, vanish: bool = False) -> None:
        """`vanish`: take the bars off the screen at the end."""
        # Not at the top: every command's help imports its module.
        from rich.console import Console

        self._console = Console(file=stream or sys.stderr, highlight=False)
        self._vanish = vanish
        self._progress: Progress | None = None
        self._tasks: dict[Hashable, TaskID] = {}
        self._name_column: Column
        self._longest_text = 0

    @property
    def live(self) -> bool:
        return self._console.is_interactive

    def draw(
        self, key: Hashable, name: str, done: float, total: float | None, text: str = ""
    ) -> None:
        """Draw or move a bar; one whose end is not known swings."""
        if self._progress is None:
            self._progress = self._started()
        self._longest_text = max(self._longest_text, len(text))
        # A name is cut where what is said behind it leaves no room.
        room = self._console.width - _AROUND_TEXT_CELLS - self._longest_text
        self._name_column.max_width = max(room, _LEAST_NAME_CELLS)
        if key not in self._tasks:
            self._tasks[key] = self._progress.add_task(name, total=total, text=text)
        self._progress.update(
            self._tasks[key], description=name, completed=done, total=total, text=text
        )

    def close(self) -> None:
        """Leave what was drawn last, or nothing; what is printed next begins below it."""
        if self._progress is not None:
            self._progress.stop()
        self._progress, self._tasks = None, {}

    def _started(self) -> Progress:
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        self._name_column = Column(no_wrap=True, overflow="ellipsis")
        progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=self._name_column),
            BarColumn(_BAR_CELLS),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=True)),
            console=self._console,
            transient=self._vanish,
            # What a command prints is for the program behind the pipe.
            redirect_stdout=False,
        )
        progress.start()
        return progress

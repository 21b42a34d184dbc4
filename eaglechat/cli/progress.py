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
"""The last column stays free, because some terminals wrap a line that fills it."""
_LEAST_NAME_CELLS = 12


class Bars:
    """One progress bar per task. Without a terminal that can redraw, nothing is drawn and `live` is
    False; the caller then prints what matters as lines."""

    def __init__(self, stream: TextIO | None = None, *, vanish: bool = False) -> None:
        """`vanish`: erase the bars at the end."""
        # Imported here, because --help imports the module of every command.
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
        """Draw a bar or move it. Without a `total` the bar pulses."""
        if self._progress is None:
            self._progress = self._started()
        self._longest_text = max(self._longest_text, len(text))
        # The text after the bar is always whole; the name gets the cells that are left.
        room = self._console.width - _AROUND_TEXT_CELLS - self._longest_text
        self._name_column.max_width = max(room, _LEAST_NAME_CELLS)
        if key not in self._tasks:
            self._tasks[key] = self._progress.add_task(name, total=total, text=text)
        self._progress.update(
            self._tasks[key], description=name, completed=done, total=total, text=text
        )

    def close(self) -> None:
        """Stop drawing. The bars stay above the next line that is printed, unless they vanish."""
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
            # Standard output may be a pipe to another program.
            redirect_stdout=False,
        )
        progress.start()
        return progress

"""What a command is doing, on standard error: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Hashable
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Rows
from rich.table import Column

from eaglechat.hub.units import format_bytes, format_seconds

_BAR_CELLS = 16
_AROUND_TEXT_CELLS = 1 + _BAR_CELLS + len(" 100% ") + 1
"""The last column stays free, because some terminals wrap a line that fills it."""
_LEAST_NAME_CELLS = 12
_TENTHS = 10


class Progress:
    """One bar per task. Where nothing can be redrawn, a line for each tenth that is done, and for
    each new state of a task."""

    def __init__(
        self, stream: TextIO | None = None, *, vanish: bool = False, after_s: float = 0.0
    ) -> None:
        """`vanish`: one bar for all tasks, erased at the end, and no lines. `after_s`: what is done
        within so many seconds is not shown."""
        self._console = Console(file=stream or sys.stderr, highlight=False)
        self._vanish = vanish
        self._from = time.monotonic() + after_s
        self._rows: Rows | None = None
        self._tasks: dict[Hashable, TaskID] = {}
        self._said: dict[Hashable, object] = {}
        self._begun: dict[Hashable, tuple[float, float]] = {}
        self._is_closed = False
        self._name_column = Column(no_wrap=True, overflow="ellipsis")
        self._longest_text = 0

    @property
    def live(self) -> bool:
        """Whether bars can be drawn."""
        return self._console.is_interactive

    def show(
        self,
        name: str,
        done: float,
        total: float | None,
        text: str = "",
        *,
        key: Hashable = None,
        state: str = "",
        timed: bool = False,
    ) -> None:
        """Draw a bar or move it. Without a `total` it pulses. `key` is of the task, if the name is
        not its own. `timed`: the time that is left stands before the text."""
        if self._is_closed:
            return
        key = None if self._vanish else name if key is None else key
        if timed and total and (left := self._seconds_left(key, done, total)):
            text = ", ".join(filter(None, (f"{format_seconds(left)} left", text)))
        if not self.live:
            tenth = int(_TENTHS * done / total) if total else None
            if not self._vanish and self._said.get(key) != (tenth, state):
                self._said[key] = tenth, state
                self._say(name, tenth, text)
        elif time.monotonic() >= self._from:
            self._draw(key, name, done, total, text)

    def show_bytes(self, name: str, done: int, total: int, more: str = "", **how: Any) -> None:
        """Show a task that takes so many bytes. Without a total it takes a while."""
        of = f"{format_bytes(done)} of {format_bytes(total)}" if total else ""
        self.show(name, done, total or None, of + more, **how)

    def close(self) -> None:
        """Stop for good. The bars stay above the next line that is printed, unless they vanish."""
        self._is_closed = True
        if self._rows is not None:
            self._rows.stop()
        self._rows = None

    def _seconds_left(self, key: Hashable, done: float, total: float) -> float:
        """At the pace since the task was first shown; 0 if that is unknown, or nothing is left."""
        now = time.monotonic()
        began, before = self._begun.setdefault(key, (now, done))
        return (now - began) / (done - before) * (total - done) if done > before else 0.0

    def _say(self, name: str, tenth: int | None, text: str) -> None:
        percent = f": {100 // _TENTHS * tenth}%" if tenth is not None else ""
        print(f"{name}{percent}  {text}".rstrip(), file=self._console.file, flush=True)

    def _draw(self, key: Hashable, name: str, done: float, total: float | None, text: str) -> None:
        if self._rows is None:
            self._rows = self._started()
        self._longest_text = max(self._longest_text, len(text))
        # The text after the bar is always whole; the name gets the cells that are left.
        room = self._console.width - _AROUND_TEXT_CELLS - self._longest_text
        self._name_column.max_width = max(room, _LEAST_NAME_CELLS)
        if key not in self._tasks:
            self._tasks[key] = self._rows.add_task(name, total=total, text=text)
        self._rows.update(
            self._tasks[key], description=name, completed=done, total=total, text=text
        )

    def _started(self) -> Rows:
        rows = Rows(
            TextColumn("{task.description}", markup=False, table_column=self._name_column),
            BarColumn(_BAR_CELLS),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=True)),
            console=self._console,
            transient=self._vanish,
            # Standard output may be a pipe to another program.
            redirect_stdout=False,
        )
        rows.start()
        return rows

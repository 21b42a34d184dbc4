"""The heights of all entries: measured for those that were drawn, estimated for the others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from eaglechat.wire.records import Part
from eaglechat.words.timeline import Entry

PROSE_CELLS = 96
"""The widest row of text: the eye loses its line in a longer one."""
MARGIN = 1
"""Empty rows below each entry."""
_NARROW = 20


class Rows:
    """The height of each entry in rows, for one width, and the row at which each entry begins."""

    def __init__(self) -> None:
        self.entries: Sequence[Entry] = ()
        self.place_of: dict[str, int] = {}
        """The index of each entry, by its key."""
        self._width = 80
        self._measured: dict[str, int] = {}
        self._estimated: dict[str, int] = {}
        self._tops = [0]

    def take(self, entries: Sequence[Entry]) -> None:
        """Set the entries. The heights of unchanged entries are kept."""
        before = {entry.key: entry for entry in self.entries}
        for entry in entries:
            if before.get(entry.key) != entry:
                self._measured.pop(entry.key, None)
                self._estimated.pop(entry.key, None)
        self.entries = entries
        self.place_of = {entry.key: place for place, entry in enumerate(entries)}
        self._add_up(0)

    def measure(self, heights: dict[int, int]) -> None:
        """Set heights of drawn entries, by their places."""
        self._measured |= {self.entries[place].key: rows for place, rows in heights.items()}
        self._add_up(min(heights, default=len(self.entries)))

    def is_measured(self, place: int) -> bool:
        return self.entries[place].key in self._measured

    def forget(self, width: int) -> None:
        """Forget all heights: text is this many cells wide now, or another text is drawn."""
        self._width = width
        self._measured.clear()
        self._estimated.clear()
        self._add_up(0)

    @property
    def total(self) -> int:
        """The height of all entries together, in rows."""
        return self._tops[-1]

    def top(self, place: int) -> int:
        """The row at which an entry begins."""
        return self._tops[place]

    def place_at(self, row: int) -> int:
        """The index of the entry at a row, or of the nearest one."""
        return min(max(bisect_right(self._tops, row) - 1, 0), max(len(self.entries) - 1, 0))

    def between(self, first: int, last: int) -> range:
        """The indexes of the entries that have rows in this range."""
        if not self.entries:
            return range(0)
        return range(self.place_at(first), self.place_at(last) + 1)

    def height(self, place: int) -> int:
        """The height of an entry in rows, measured or estimated, with the margin below it."""
        entry = self.entries[place]
        height = self._measured.get(entry.key) or self._estimated.get(entry.key)
        if height is None:
            height = self._estimated[entry.key] = MARGIN + _estimate(entry, self._width)
        return height

    def _add_up(self, first: int) -> None:
        """Compute the rows at which the entries after index `first` begin."""
        heights = map(self.height, range(first, len(self.entries)))
        self._tops[first:] = accumulate(heights, initial=self._tops[first])


def _estimate(entry: Entry, width: int) -> int:
    """Estimate the height, in rows, of an entry that was never drawn."""
    if entry.kind == "window" or (entry.kind == "thought" and entry.note is not None):
        return 1
    text, below = entry.text, int(entry.place is not None)
    if entry.recording is not None:
        part = Part.REASONING if entry.kind == "thought" else Part.ANSWER
        text = entry.recording.written(part)
        below += bool(entry.note)
    return 1 + text.count("\n") + len(text) // max(width, _NARROW) + below

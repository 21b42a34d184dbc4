"""The heights of all entries: measured for those that were laid out, estimated for the others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
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
        self._width = 0
        self._counted: dict[str, int] = {}
        self._estimated: dict[str, int] = {}
        self._tops = [0]

    def take(self, entries: Sequence[Entry]) -> None:
        """Set the entries. The heights of unchanged entries are kept."""
        for entry in entries:
            place = self.place_of.get(entry.key)
            if place is not None and self.entries[place] != entry:
                self._counted.pop(entry.key, None)
                self._estimated.pop(entry.key, None)
        self.entries = entries
        self.place_of = {entry.key: place for place, entry in enumerate(entries)}
        self._add_up()

    def count(self, width: int, heights: Mapping[str, int]) -> None:
        """Set measured heights, by the keys of the entries. Another width than before forgets all
        other heights."""
        if width != self._width:
            self.forget()
            self._width = width
        # While a reply is written only the last entry grows, so only its row is added up again.
        grown = [key for key, height in heights.items() if self._counted.get(key) != height]
        first = min((self.place_of[key] for key in grown), default=len(self.entries))
        first = first if self._counted else 0
        self._counted |= heights
        self._add_up(first)

    def forget(self) -> None:
        self._counted.clear()
        self._estimated.clear()

    @property
    def total(self) -> int:
        """The height of all entries together, in rows."""
        return self._tops[-1]

    def top(self, key: str) -> int:
        """The row at which an entry begins."""
        return self._tops[self.place_of[key]]

    def place_at(self, row: float) -> int:
        """The index of the entry at a row, or of the nearest one."""
        return min(max(bisect_right(self._tops, row) - 1, 0), max(len(self.entries) - 1, 0))

    def between(self, first: float, last: float) -> range:
        """The indexes of the entries that have rows in this range."""
        if not self.entries:
            return range(0)
        return range(self.place_at(first), self.place_at(last) + 1)

    def _add_up(self, first: int = 0) -> None:
        """Compute the rows at which the entries from index `first` on begin."""
        heights = map(self.height, self.entries[first:])
        self._tops[first:] = accumulate(heights, initial=self._tops[first])

    def height(self, entry: Entry) -> int:
        """The height of an entry in rows, measured or estimated, with the margin below it."""
        height = self._counted.get(entry.key) or self._estimated.get(entry.key)
        if height is None:
            height = self._estimated[entry.key] = MARGIN + _estimate(entry, self._width or 80)
        return height


def _estimate(entry: Entry, width: int) -> int:
    """Estimate the height, in rows, of an entry that was never laid out."""
    if entry.kind == "window" or (entry.kind == "thought" and entry.note is not None):
        return 1
    width = min(width, PROSE_CELLS)
    text, below = entry.text, int(entry.place is not None)
    if entry.recording is not None:
        part = Part.REASONING if entry.kind == "thought" else Part.ANSWER
        text = entry.recording.written(part)
        below += bool(entry.note)
    return 1 + text.count("\n") + len(text) // max(width, _NARROW) + below

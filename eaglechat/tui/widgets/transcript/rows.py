"""The entries of a chat in rows: wrapped near what is seen, elsewhere of an estimated height."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from eaglechat.tui.widgets.transcript.entries import DrawnEntry
from eaglechat.tui.widgets.transcript.markdown import Look
from eaglechat.words.timeline import Entry

PROSE_CELLS = 96
"""The widest row of text: the eye loses its line in a longer one."""


class Rows:
    """The entries and their heights, for one look."""

    def __init__(self) -> None:
        self.entries: Sequence[Entry] = ()
        self.drawn: list[DrawnEntry] = []
        """What is drawn of each entry."""
        self.place_of: dict[str, int] = {}
        """The index of each entry, by its key."""
        self.unfolded: set[str] = set()
        """The keys of unfolded thoughts."""
        self.tops = [0]
        """The row at which each entry begins, and last the height of all."""
        self._look = Look("live", 0, dark=True)

    def take(self, entries: Sequence[Entry]) -> None:
        """Set the entries. What is drawn of unchanged entries is kept."""
        before = {one.entry.key: one for one in self.drawn}
        same = (before.get(entry.key) for entry in entries)
        self.drawn = [
            old if old is not None and old.entry == entry else self._new(entry)
            for old, entry in zip(same, entries, strict=True)
        ]
        self.entries = entries
        self.place_of = {entry.key: place for place, entry in enumerate(entries)}
        self._add_up(0)

    def _new(self, entry: Entry) -> DrawnEntry:
        return DrawnEntry(entry, self._look, is_unfolded=entry.key in self.unfolded)

    def fit(self, look: Look) -> None:
        """Forget what was drawn with another look."""
        if look != self._look:
            self._look = look
            self.drawn = [*map(self._new, self.entries)]
            self._add_up(0)

    def measure(self, places: Iterable[int], *, again: bool = False) -> bool:
        """Measure those of these entries of which the height is an estimate, or all of them again.
        Returns whether there were any."""
        missing = [place for place in places if again or not self.drawn[place].is_measured]
        for place in missing:
            self.drawn[place].measure()
        if missing:
            self._add_up(missing[0])
        return bool(missing)

    def fold(self, place: int) -> None:
        self.unfolded ^= {self.entries[place].key}
        self.drawn[place] = self._new(self.entries[place])
        self._add_up(place)

    def place_at(self, row: int) -> int:
        """The index of the entry at a row, or of the nearest one."""
        return min(max(bisect_right(self.tops, row) - 1, 0), max(len(self.drawn) - 1, 0))

    def between(self, first: int, last: int) -> range:
        """The indexes of the entries that have rows in this range."""
        return range(self.place_at(first), self.place_at(last) + 1 if self.drawn else 0)

    def _add_up(self, first: int) -> None:
        heights = (one.height for one in self.drawn[first:])
        self.tops[first:] = accumulate(heights, initial=self.tops[first])

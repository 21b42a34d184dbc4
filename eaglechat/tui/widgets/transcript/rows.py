"""The entries of a chat in rows: wrapped near what is seen, elsewhere of an estimated height."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from eaglechat.tui.widgets.transcript.entries import MARGIN, DrawnEntry, ReplyEntry
from eaglechat.tui.widgets.transcript.markdown import Look
from eaglechat.wire.records import Part
from eaglechat.words.timeline import Entry

PROSE_CELLS = 96
"""The widest row of text: the eye loses its line in a longer one."""
_NARROW = 20


class _Item:
    """An entry, and what is drawn of it."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.drawn: DrawnEntry | None = None
        self.height, self.is_measured = 0, False
        """In rows, with the margin below it; 0 before it was estimated."""


class Rows:
    """The entries and their heights, for one look."""

    def __init__(self) -> None:
        self.entries: Sequence[Entry] = ()
        self.place_of: dict[str, int] = {}
        """The index of each entry, by its key."""
        self.unfolded: set[str] = set()
        """The keys of unfolded thoughts."""
        self.look: Look | None = None
        self.tops = [0]
        """The row at which each entry begins, and last the height of all."""
        self._items: list[_Item] = []

    def take(self, entries: Sequence[Entry]) -> None:
        """Set the entries. What is known of unchanged entries is kept."""
        before = {item.entry.key: item for item in self._items}
        same = (before.get(entry.key) for entry in entries)
        self._items = [
            old if old is not None and old.entry == entry else _Item(entry)
            for old, entry in zip(same, entries, strict=True)
        ]
        self.entries = entries
        self.place_of = {entry.key: place for place, entry in enumerate(entries)}
        self._add_up(0)

    def fit(self, look: Look) -> None:
        """Forget what was drawn with another look."""
        if look != self.look:
            self.look = look
            self._items = [*map(_Item, self.entries)]
            self._add_up(0)

    def measure(self, places: Iterable[int], *, again: bool = False) -> bool:
        """Measure those of these entries of which the height is an estimate, or all of them again.
        Returns whether there were any."""
        missing = [place for place in places if again or not self._items[place].is_measured]
        for place in missing:
            item = self._items[place]
            item.height, item.is_measured = self.drawn(place).height, True
        if missing:
            self._add_up(missing[0])
        return bool(missing)

    def fold(self, place: int) -> None:
        self.unfolded ^= {self.entries[place].key}
        self._items[place].drawn = None
        if self.look is not None:
            self.measure([place], again=True)

    def drawn(self, place: int) -> DrawnEntry:
        """The entry at an index of `entries`, wrapped."""
        item = self._items[place]
        if item.drawn is None:
            assert self.look is not None
            if item.entry.recording is None:
                item.drawn = DrawnEntry(item.entry, self.look)
            else:
                is_over_thought = item.entry.kind == "thought" and item.entry.note is not None
                is_folded = is_over_thought and item.entry.key not in self.unfolded
                item.drawn = ReplyEntry(item.entry, self.look, is_folded=is_folded)
        return item.drawn

    def drawn_before(self, key: str) -> DrawnEntry | None:
        """The entry of this key, if it is wrapped."""
        place = self.place_of.get(key)
        return self._items[place].drawn if place is not None else None

    def forget_strips(self) -> None:
        """Selections, marks or styles changed."""
        for item in self._items:
            if item.drawn is not None:
                item.drawn.strips.clear()

    def place_at(self, row: int) -> int:
        """The index of the entry at a row, or of the nearest one."""
        return min(max(bisect_right(self.tops, row) - 1, 0), max(len(self._items) - 1, 0))

    def between(self, first: int, last: int) -> range:
        """The indexes of the entries that have rows in this range."""
        if not self._items:
            return range(0)
        return range(self.place_at(first), self.place_at(last) + 1)

    def _add_up(self, first: int) -> None:
        width = self.look.width if self.look is not None else 0
        for item in self._items[first:]:
            item.height = item.height or MARGIN + _estimate(item.entry, width)
        heights = (item.height for item in self._items[first:])
        self.tops[first:] = accumulate(heights, initial=self.tops[first])


def _estimate(entry: Entry, width: int) -> int:
    if entry.kind == "window" or (entry.kind == "thought" and entry.note is not None):
        return 1
    text, below = entry.text, int(entry.place is not None)
    if entry.recording is not None:
        part = Part.REASONING if entry.kind == "thought" else Part.ANSWER
        text = entry.recording.written(part)
        below += bool(entry.note)
    return 1 + text.count("\n") + len(text) // max(width, _NARROW) + below

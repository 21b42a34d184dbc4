"""Word wrap for terminals: the pieces of a line become those of rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.style import Style

TEXT = "text"
"""The kind of text that has no token origin and therefore no colour of its own."""
FAINT = "faint"
"""The kind of margins and other lines beside the text."""

_JOINER = "\u200d"
# East Asian scripts and emoji: a row may break before and after each character.
_WIDE = (
    "\u1100-\u115f\u2e80-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3"
    "\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6\U0001f300-\U0001faff\U00020000-\U0003fffd"
)
_MARKS = "\u0300-\u036f\u200b-\u200f\u20d0-\u20ff\u3099\u309a\ufe00-\ufe0f\U0001f3fb-\U0001f3ff"
# A row does not begin with these when they follow an East Asian character.
_WIDE_CLOSERS = "、。，．：；！？）］｝」』】〉》〕〗ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ"  # noqa: RUF001
_WORD = re.compile(
    rf"(?:(?:[{_WIDE}](?:[{_MARKS}]|{_JOINER}.)*|[^ {_WIDE}]+)"
    rf"(?:[{_WIDE_CLOSERS}]|(?<=[{_WIDE}])[,.:;!?)\]}}][^ {_WIDE}]*)*)?( *)"
)
"""Characters that stay together in a row, and the spaces behind them."""
_LEAST_BESIDE = 4
"""A margin that is wider than one cell in this many is left out."""


class Piece(NamedTuple):
    """A run of one style within a row.

    `start` and `stop` are characters of the copied text. The shown text is longer than that range
    if it stands for a tab or is not copied at all, and is then never cut into characters.
    """

    shown: str
    style: str | Style
    """The name of a kind of text, whose style the transcript looks up, or a Rich style."""
    start: int
    stop: int

    @property
    def is_literal(self) -> bool:
        return len(self.shown) == self.stop - self.start

    def part(self, begin: int, end: int) -> Piece:
        """These of its shown characters."""
        end = min(end, len(self.shown))
        if not self.is_literal:
            return self._replace(shown=self.shown[begin:end])
        return Piece(self.shown[begin:end], self.style, self.start + begin, self.start + end)


Row = list[Piece]
"""What a row of the screen shows: at least one piece, so that a row knows its place in the text."""


def place_at(row: Row, x: int) -> int | None:
    """The place in the copied text of what is drawn in cell `x` of a row; None if nothing is."""
    for piece in row:
        cells = cell_len(piece.shown)
        if x < cells:
            before = next(n for n in range(len(piece.shown)) if cell_len(piece.shown[: n + 1]) > x)
            return piece.start + (before if piece.is_literal else 0)
        x -= cells
    return None


def wrap(
    pieces: Iterable[Piece], width: int, at: int, first: str = "", later: str = ""
) -> list[Row]:
    """Wrap a line to a width in cells. `at` is its place in the copied text.

    A word moves to the next row whole, unless it is wider than a row. Spaces that do not fit at
    the end of a row are not shown. East Asian text breaks between any two characters, except
    before closing punctuation. The first row begins with the margin `first`, the others with
    `later`; both are left out of a narrow row.
    """
    if width < _LEAST_BESIDE * max(len(first), len(later)):
        first = later = ""
    pieces = _with_whole_characters(pieces)
    rooms = (max(1, width - cell_len(one)) for one in (first, later))
    rows = [*_cut(pieces, _rows("".join(piece.shown for piece in pieces), *rooms), at)]
    for number, row in enumerate(rows):
        if margin := later if number else first:
            row.insert(0, Piece(margin, FAINT, row[0].start, row[0].start))
    return rows


def _with_whole_characters(pieces: Iterable[Piece]) -> Sequence[Piece]:
    """Combining marks and joined emoji become part of the piece with the character before them:
    apart, they would be measured otherwise than terminals draw them."""
    whole: list[Piece] = []
    for piece in pieces:
        last = whole[-1] if whole else Piece("", TEXT, 0, 0)
        is_mark = not piece.shown.isascii() and not cell_len(piece.shown[0])
        is_of_last = (last.stop > last.start) == (piece.stop > piece.start)
        if not (is_mark or last.shown[-1:] == _JOINER) or last.shown[-1:] in " " or not is_of_last:
            whole.append(piece)
            continue
        size = next(_characters(piece.shown))[1]
        head = piece.part(0, size)
        whole[-1] = Piece(last.shown + head.shown, last.style, last.start, head.stop)
        if size < len(piece.shown):
            whole.append(piece.part(size, len(piece.shown)))
    return whole


def _rows(text: str, first: int, later: int) -> Iterator[tuple[int, int]]:
    """Where each row of a text begins and ends, if the first has so many cells, and each later
    one."""
    start, stop, column, room = 0, 0, 0, first
    for word in _WORD.finditer(text):
        begin, end = word.start(), word.start(1)
        if not word[0]:
            break
        cells = cell_len(text[begin:end])
        if column and (column + cells > room or stop < begin):
            yield start, stop
            start, column, room = begin, 0, later
        for left, right in [(begin, end)] if cells <= room else _characters(text, begin, end):
            cells = cell_len(text[left:right])
            if column and column + cells > room:
                yield start, left
                start, column, room = left, 0, later
            column += cells
        spaces = min(len(word[1]), max(0, room - column))
        stop, column = end + spaces, column + spaces
    yield start, stop


def _characters(text: str, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int]]:
    """The start and end of each character, including its combining marks and joined emoji."""
    stop = len(text) if stop is None else stop
    for place in range(start + 1, stop):
        if cell_len(text[place]) and text[place - 1] != _JOINER:
            yield start, place
            start = place
    yield start, stop


def _cut(pieces: Sequence[Piece], rows: Iterable[tuple[int, int]], at: int) -> Iterator[Row]:
    """The parts of the pieces in each row. `at` is the place of the line in the copied text."""
    place, number = 0, 0
    for start, stop in rows:
        row: Row = []
        while number < len(pieces) and place < stop:
            piece = pieces[number]
            if place + len(piece.shown) > start:
                row.append(piece.part(max(0, start - place), stop - place))
                at = row[-1].stop
            if place + len(piece.shown) > stop:
                break
            place, number = place + len(piece.shown), number + 1
        yield row or [Piece("", TEXT, at, at)]

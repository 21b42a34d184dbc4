"""Incremental word wrap of styled text for terminals.

Appending changes only the last row, so its cost does not grow with the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.cells import cell_len
from rich.style import Style

TEXT = "text"
"""The kind of text that has no token origin and therefore no colour of its own."""
TAB_CELLS = 4

_JOINER = "\u200d"
# East Asian scripts and emoji: a row may break before and after each character.
_WIDE = (
    "\u1100-\u115f\u2e80-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3"
    "\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6\U0001f300-\U0001faff\U00020000-\U0003fffd"
)
# A long word comes in parts: each row measures what is left of a part.
_ATOM = re.compile(rf"\n|\t| {{1,256}}|[{_WIDE}]|[^\n\t {_WIDE}]{{1,256}}")
_IS_WIDE = re.compile(rf"[{_WIDE}]")
# A row does not begin with these when they follow an East Asian character.
_CLOSERS = frozenset(
    ",.:;!?)]}、。，．：；！？）］｝」』】〉》〕〗ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ"  # noqa: RUF001
)

_MOST_JOINED = 64
"""The longest piece, in characters, that combining characters are still added to. Each addition
measures the whole piece again, and a model may write combining marks without end."""


_LEAST_BESIDE = 4
"""A margin that is wider than one cell in this many is left out."""


class Run(NamedTuple):
    """Text of one kind that an entry draws. `copied` is as in `Wrapping.append`."""

    text: str
    kind: str
    copied: bool = True


class Piece(NamedTuple):
    """A run of one style within a row.

    `start` and `stop` are offsets, in characters, into the copied text of its line. The shown text
    is longer than that range if it stands for a tab or is not copied at all.
    """

    shown: str
    style: str | Style
    """The name of a kind of text, whose style the entry looks up, or a Rich style."""
    start: int
    stop: int


@dataclass
class Row:
    """One row of the screen: the part of line `line` that begins at character `start`. Both count
    from 0, in the copied text."""

    line: int
    start: int
    pieces: list[Piece] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(piece.shown for piece in self.pieces)


class Place(NamedTuple):
    """The state of a Wrapping, to which it can go back."""

    rows: int
    last_row: Row
    copied: int
    line: int
    character: int
    column: int
    first: int
    unit: int
    last: str


class Wrapping:
    """Wraps text to a width in cells while it arrives.

    A word moves to the next row whole, unless it is wider than a row. Spaces that do not fit at
    the end of a row are not shown. East Asian text breaks between any two characters, except
    before closing punctuation.
    """

    def __init__(self, width: int) -> None:
        self.width = max(1, width)
        self.rows = [Row(0, 0)]
        self._copied: list[str] = []
        self._line = 0
        self._index = 0
        self._column = 0
        self._margin: tuple[str, str | Style] = "", ""
        """What a row that continues the line begins with, and its style."""
        self._first = 0
        """The number of pieces at the start of the last row that are its margin."""
        self._unit = 0
        """The index, in the last row, of the first piece of the word that must stay together."""
        self._last = " "
        """The last atom. It decides whether a row may break before the next one."""

    @property
    def text(self) -> str:
        """The text that is copied if everything is selected."""
        return "".join(self._copied)

    def here(self) -> Place:
        """The place where the text ends now."""
        last = self.rows[-1]
        return Place(
            len(self.rows), Row(last.line, last.start, [*last.pieces]), len(self._copied),
            self._line, self._index, self._column, self._first, self._unit, self._last,
        )  # fmt: skip

    def go_back(self, to: Place) -> None:
        """Drop what was added since the text ended at this place."""
        last = to.last_row
        self.rows[to.rows - 1 :] = [Row(last.line, last.start, [*last.pieces])]
        del self._copied[to.copied :]
        (self._line, self._index, self._column, self._first, self._unit, self._last) = to[3:]
        self._margin = "", ""

    def indent(self, margin: str, style: str | Style, *, now: str = "") -> None:
        """Begin each further row of this line with `margin`, and show `now` at the start of this
        one. Neither is copied."""
        is_wide = self.width >= _LEAST_BESIDE * len(margin or now)
        self._margin = (margin, style) if is_wide else ("", "")
        if now and is_wide:
            self._push(now, style, 0)
            self._first = self._unit = len(self.rows[-1].pieces)
            self._last = " "

    def hide(self, text: str) -> None:
        """Add text to what is copied, and show nothing of it. It holds no line break."""
        self._copied.append(text)
        self._index += len(text)

    def append(self, text: str, style: str | Style, *, copied: bool = True) -> None:
        """Add neutralised text. If `copied` is false, it is shown but is no part of `text`."""
        if copied:
            self._copied.append(text)
        for atom in _ATOM.findall(text):
            if atom == "\n":
                self._end_line(copied)
            elif atom == "\t":
                self._add_space(" " * (TAB_CELLS - self._column % TAB_CELLS), style, int(copied))
            elif atom[0] == " ":
                self._add_space(atom, style, len(atom) if copied else 0)
            else:
                self._add_word(atom, style, copied)

    def append_if_it_fits(self, text: str, style: str | Style) -> None:
        """Show neutralised text without line breaks, which is not copied, if the last row has room
        for all of it."""
        if cell_len(text) <= self.width - self._column:
            self._push(text, style, 0)

    def _end_line(self, copied: bool) -> None:
        if copied:
            self._line += 1
            self._index = 0
        self._margin = "", ""
        self._new_row()
        self._last = " "

    def _add_space(self, shown: str, style: str | Style, characters: int) -> None:
        self._push(shown[: max(0, self.width - self._column)], style, characters)
        self._last = " "

    def _add_word(self, atom: str, style: str | Style, copied: bool) -> None:
        if not atom.isascii() or self._last[-1] == _JOINER:
            atom = self._join(atom, copied)
            if not atom:
                return
        if self._may_break_before(atom):
            self._unit = len(self.rows[-1].pieces)
        self._place(atom, style, copied)

    def _join(self, atom: str, copied: bool) -> str:
        """Add combining marks and joined emoji at the start of the atom to the last piece. Returns
        the rest of the atom."""
        pieces = self.rows[-1].pieces
        size = _continuation(atom, self._last[-1] == _JOINER)
        if not size or not pieces or self._last == " ":
            return atom
        last = pieces[-1]
        if copied != (last.stop > last.start) or len(last.shown) > _MOST_JOINED:
            return atom
        pieces.pop()
        self._column -= cell_len(last.shown)
        self._index = last.start if copied else self._index
        self._place(last.shown + atom[:size], last.style, copied)
        return atom[size:]

    def _may_break_before(self, atom: str) -> bool:
        if self._last == " ":
            return True
        closing = atom[0] in _CLOSERS
        return not closing and bool(_IS_WIDE.match(atom) or _IS_WIDE.match(self._last))

    def _place(self, atom: str, style: str | Style, copied: bool) -> None:
        cells = cell_len(atom)
        if self._column + cells > self.width and self._unit > self._first:
            self._move_unit_to_new_row()
        self._last = atom
        while self._column + cells > self.width:
            size = _fitting(atom, self.width - self._column)
            if size == 0 and len(self.rows[-1].pieces) == self._first:
                size = _first_cluster(atom)
            self._push(atom[:size], style, size if copied else 0)
            atom = atom[size:]
            if not atom:
                return
            self._new_row()
            cells = cell_len(atom)
        self._push(atom, style, len(atom) if copied else 0)

    def _move_unit_to_new_row(self) -> None:
        pieces = self.rows[-1].pieces
        moved = pieces[self._unit :]
        del pieces[self._unit :]
        self._new_row(moved[0].start if moved else None)
        self.rows[-1].pieces += moved
        self._column += sum(cell_len(piece.shown) for piece in moved)

    def _new_row(self, start: int | None = None) -> None:
        start = self._index if start is None else start
        margin, style = self._margin
        pieces = [Piece(margin, style, start, start)] if margin else []
        self.rows.append(Row(self._line, start, pieces))
        self._column = cell_len(margin)
        self._first = self._unit = len(pieces)

    def _push(self, shown: str, style: str | Style, characters: int) -> None:
        if shown:
            piece = Piece(shown, style, self._index, self._index + characters)
            self.rows[-1].pieces.append(piece)
            self._column += cell_len(shown)
        self._index += characters


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """The start and end of each character, including its combining marks and joined emoji."""
    start = 0
    for index in range(1, len(text)):
        if cell_len(text[index]) and text[index - 1] != _JOINER:
            yield start, index
            start = index
    yield start, len(text)


def _fitting(text: str, cells: int) -> int:
    """How many characters fit into `cells` without cutting a cluster."""
    for start, end in _clusters(text):
        cells -= cell_len(text[start:end])
        if cells < 0:
            return start
    return len(text)


def _first_cluster(text: str) -> int:
    return next(_clusters(text))[1]


def _continuation(text: str, joined: bool) -> int:
    """How many characters at the start of `text` belong to the character before it."""
    if joined:
        return _first_cluster(text)
    return 0 if cell_len(text[0]) else _first_cluster(text)

"""The text of an entry, in rows, which may grow; and the Markdown of a line, of which each token
keeps its ink.

Every character of the source is in the copied text, also the Markdown marks that are not shown, so
that places in it are those of the reply: of its tokens, and of what is found in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

from rich.cells import cell_len
from rich.style import Style

from eaglechat.tui.themes import REJECTED
from eaglechat.tui.widgets.transcript.wrapping import FAINT, Piece, Row, wrap
from eaglechat.words.neutral import neutralise

STRONG, EMPHASIS, CODE, LINK = "strong", "emphasis", "code", "link"
"""Formats. They stand after the ink in the name of a kind: `guessed strong`."""
COPY = "copy"
"""The kind of the word at the end of a code block, which a click copies."""

TAB_CELLS = 4
_MOST_OPEN = 1500
"""Characters of a line, at most, that are drawn again when it grows. What follows begins a row, and
a format that begins in them and ends behind them is none."""
_HIDDEN = "hidden"

_FENCE = re.compile(r"\s{0,99}(?P<marks>`{3,}|~{3,})(?P<language>[^`]{0,99})$")
_HEADING = re.compile(r"#{1,6}(?: +|$)")
_QUOTE = re.compile(r" {0,3}(?:> ?)+")
_ITEM = re.compile(r"\s{0,99}(?:[-*+]|\d{1,9}[.)]) +")
_TAKEN = "\0"
_MARKS = {
    CODE: (r"(?<!`)(?P<mark>`+)(?!`)", r"(?<!`)(?P=mark)(?!`)"),
    STRONG: (r"(?<!\*)\*\*(?!\*\*|\s)", r"(?<!\s)\*\*"),
    EMPHASIS: (r"(?<![\w*])\*(?![\s*])", r"(?<![\s*])\*(?!\*)"),
}
"""What begins and ends a format, in the order in which they are looked for."""
_TEXTS = {CODE: ".", STRONG: r"(?!\s\*\*\w).", EMPHASIS: r"(?!\s\*\w)."}
"""A character between them: where a format begins again, the first beginning is none."""
_PAIRS = {
    is_over: {
        format: re.compile(f"{begins}(?P<text>(?:{_TEXTS[format]})*?)(?:{ends}{or_end})")
        for format, (begins, ends) in _MARKS.items()
    }
    for is_over, or_end in ((True, ""), (False, r"|\Z"))
}
WRITTEN_LINK = re.compile(
    r"\[[^\[\]]{1,200}\]\((?:[^()\s]|\([^()\s]{0,500}\)){1,500}\)|https?://[^\s<>]+"
)
_TABS = re.compile("(\t)")


class Run(NamedTuple):
    """Text of one kind, or in a Rich style, that an entry draws. What is not `copied` is only
    shown, and has no line break."""

    text: str
    kind: str | Style
    copied: bool = True


@dataclass(frozen=True)
class Line:
    """How a line is drawn; in Markdown its beginning tells."""

    marker_length: int = 0
    """Characters of the Markdown marker: `## `, `> `, `- `."""
    format: str = ""
    shows_marker: bool = True
    margin: str = ""
    first: str = ""
    """What stands at the left of its first row, and of the others `margin`."""
    is_literal: bool = False
    """Its text is shown as it is written."""
    ends_code: bool = False


PLAIN = Line(is_literal=True)
IN_CODE = Line(margin="│ ", first="│ ", is_literal=True)


class GrowingText:
    """Rows of a text that grows. Complete lines are drawn once; only the last line is drawn
    again."""

    def __init__(self, width: int, line: Line | None = None, at: int = 0) -> None:
        """All lines are drawn as `line`, or if that is None as Markdown. `at` is the place of the
        text in what is copied."""
        self._width, self._style = max(1, width), line
        self.rows: list[Row] = []
        self._drawn: list[str] = []
        """The copied text of the rows that are drawn for good."""
        self._n_drawn, self._at = 0, at
        """The number of those rows, and where the text that follows them begins."""
        self._open: list[Run] = []
        """What is known of the line that is not complete, behind those rows."""
        self._fence = ""
        """The marks that opened the code block; empty outside of one."""
        self._line: Line | None = None
        """Set if the beginning of the open line is drawn for good."""
        self.add(())

    @property
    def text(self) -> str:
        """The text that is copied if everything is selected."""
        return "".join(self._drawn) + _source(self._open)

    def add(self, runs: Iterable[Run], ghost: str = "", *, is_over: bool = False) -> int:
        """Add text, and show a rejected guess, the `ghost`, behind it until the next call: only if
        the last row has room, so that it moves nothing. Returns the first row that is not as it
        was."""
        first = self._n_drawn
        before = self.rows[first:]
        del self.rows[first:]
        rest, *others = _lines(runs)
        *complete, last = [[*self._open, *rest], *others]
        for line in complete:
            rest = self._draw(line, is_over=True)
            if self._line is None and self._style is None:
                source = _source(rest)
                if self._fence:
                    self._fence = "" if _closes(source, self._fence) else self._fence
                elif found := _FENCE.match(source):
                    self._fence = found["marks"]
            self._line = None
            self._keep(f"{_source(rest)}\n")
        self._open = self._draw(last, is_over=is_over)
        row, ghost = self.rows[-1], neutralise(ghost)
        shown = ghost if ghost[:1] == " " else f" {ghost}"
        cells = sum(cell_len(piece.shown) for piece in row) + cell_len(shown)
        if ghost and row[-1].style != COPY and cells <= self._width:
            row.append(Piece(shown, REJECTED, row[-1].stop, row[-1].stop))
        pairs = enumerate(zip(before, self.rows[first:], strict=False))
        same = min(len(before), len(self.rows) - first)
        return first + next((place for place, (old, new) in pairs if old != new), same)

    def say(self, note: str, kind: str) -> None:
        """Add lines below the text, which are not copied."""
        end = self._at + len(_source(self._open))
        if not any(piece.shown for row in self.rows for piece in row):
            self.rows.clear()
        for line in neutralise(note).split("\n"):
            self.rows += wrap([Piece(line, kind, end, end)], self._width, end)

    def put(self, rows: Iterable[Row], source: str) -> None:
        """Add complete lines, behind one, that are drawn as these rows; `source` is copied."""
        del self.rows[self._n_drawn :]
        self.rows += rows
        self._keep(source)

    def _keep(self, text: str) -> None:
        """All rows, with this text at their end, are drawn for good."""
        self._drawn.append(text)
        self._at, self._n_drawn = self._at + len(text), len(self.rows)

    def _draw(self, runs: list[Run], *, is_over: bool) -> list[Run]:
        """Draw the line at the end, or the rest of it. Returns what of it is drawn again if it
        grows."""
        while len(source := _source(runs)) > _MOST_OPEN:
            head, runs = _split(runs, 1 + source.rfind(" ", 0, _MOST_OPEN) or _MOST_OPEN)
            line = self._line_of(head, is_over=True)
            self.rows += self._rows_of(head, line, is_over=True)
            self._keep(_source(head))
            self._line = line
        self.rows += self._rows_of(runs, self._line_of(runs, is_over=is_over), is_over=is_over)
        return runs

    def _line_of(self, runs: Sequence[Run], *, is_over: bool) -> Line:
        return self._style or self._line or _line_of(_source(runs), self._fence, is_over)

    def _rows_of(self, runs: Sequence[Run], line: Line, *, is_over: bool) -> list[Row]:
        """The rows of a line, or of the rest of one."""
        source, is_begun = _source(runs), self._line is not None
        start = 0 if is_begun else line.marker_length
        marker = "" if line.shows_marker else _HIDDEN
        formats = [marker] * start + [line.format] * (len(source) - start)
        pairs = [] if line.is_literal else _pairs(source, start, is_over)
        looks = [(begin, end, format) for _, begin, end, _, format in pairs]
        if not line.is_literal:
            looks += [(*found.span(), LINK) for found in WRITTEN_LINK.finditer(source)]
        for begin, end, format in looks:
            formats[begin:end] = [
                one if format in one else f"{one} {format}" for one in formats[begin:end]
            ]
        for first, begin, end, stop, _ in pairs:
            formats[first:begin] = [_HIDDEN] * (begin - first)
            formats[end:stop] = [_HIDDEN] * (stop - end)
        pieces, end = [*_pieces(runs, formats, self._at)], self._at + len(source)
        if line.ends_code:
            pieces.append(Piece("copy", COPY, end, end))
        margin = line.margin if is_begun else line.first
        return wrap(pieces, self._width, self._at, margin, line.margin)


def _lines(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs of each line, neutralised and without the line breaks."""
    lines: list[list[Run]] = [[]]
    for run in runs:
        first, *others = neutralise(run.text).split("\n")
        lines[-1].append(run._replace(text=first))
        lines += ([run._replace(text=other)] for other in others)
    return lines


def _source(runs: Iterable[Run]) -> str:
    return "".join(run.text for run in runs if run.copied)


def _split(runs: Iterable[Run], place: int) -> tuple[list[Run], list[Run]]:
    """The runs before and after a character of their source."""
    before: list[Run] = []
    after: list[Run] = []
    for run in runs:
        size = len(run.text) if run.copied else 0
        if size > place:
            before += [run._replace(text=run.text[:place])] if place else []
            after.append(run._replace(text=run.text[place:]))
        else:
            (after if after else before).append(run)
        place = max(0, place - size)
    return before, after


def _pieces(runs: Iterable[Run], formats: Sequence[str], at: int) -> Iterator[Piece]:
    """The pieces of a line at a place of the copied text; `formats` are those of its characters."""
    parts: list[tuple[str | Style, bool, str]] = []
    rest = iter(formats)
    for text, kind, copied in runs:
        if not copied:
            parts.append((kind, False, text))
            continue
        begin = 0
        for format, same in groupby(islice(rest, len(text))):
            stop = begin + len([*same])
            parts.append((_look(kind, format), True, text[begin:stop]))
            begin = stop
    column = 0
    for (look, copied), group in groupby(parts, itemgetter(0, 1)):
        text = "".join(part for _, _, part in group)
        for part in _TABS.split(text):
            stop = at + len(part) * copied
            if part and look != _HIDDEN:
                shown = " " * (TAB_CELLS - column % TAB_CELLS) if part == "\t" else part
                column += cell_len(shown)
                yield Piece(shown, look, at, stop)
            at = stop


def _look(kind: str | Style, format: str) -> str | Style:
    if format in (_HIDDEN, FAINT):
        return format
    if isinstance(kind, Style):
        return kind
    return f"{kind} {format.strip()}" if format else kind


def _closes(source: str, fence: str) -> bool:
    return source.strip().startswith(fence) and not source.strip().strip(fence[0])


def _line_of(source: str, fence: str, is_over: bool) -> Line:
    whole = len(source)
    if fence and _closes(source, fence):
        return Line(whole, FAINT, shows_marker=False, first="╰ ", ends_code=True)
    if fence:
        return IN_CODE
    line = Line(is_literal=source.startswith("|"))
    if found := _FENCE.match(source):
        mark = found.end("marks")
        line = Line(mark, FAINT, shows_marker=False, margin="│ ", first="╭ ", is_literal=True)
    elif found := _HEADING.match(source):
        if not is_over or found.end() < whole:
            line = Line(found.end(), STRONG, shows_marker=False)
    elif found := _QUOTE.match(source):
        line = Line(found.end(), shows_marker=False, margin="│ ", first="│ ")
    elif found := _ITEM.match(source):
        line = Line(found.end(), margin=" " * found.end())
    return line


def _pairs(source: str, start: int, is_over: bool) -> list[tuple[int, int, int, int, str]]:
    """The pairs of marks in a line from `start` on: where the first begins and ends, and then the
    other one, and the format. If the line still grows, what its last marks begin is taken to be
    closed at its end."""
    text, pairs = source[start:], list[tuple[int, int, int, int, str]]()

    def take(format: str, found: re.Match[str]) -> str:
        """Note a pair. Its marks, and all that is code, are no marks of other formats."""
        (first, stop), (begin, end) = found.span(), found.span("text")
        pairs.append((start + first, start + begin, start + end, start + stop, format))
        inside = _TAKEN * (end - begin) if format == CODE else found["text"]
        return _TAKEN * (begin - first) + inside + _TAKEN * (stop - end)

    for format, pattern in _PAIRS[is_over].items():
        text = pattern.sub(partial(take, format), text)
    return pairs

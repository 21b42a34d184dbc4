"""The text of a growing reply, formatted line by line while each token keeps its ink.

Every character of the source is in the copied text, also the Markdown marks that are not shown, so
that offsets in it are those of the reply: of its tokens, and of what is found in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eaglechat.tui.widgets.transcript.marks import STRONG, marks_of
from eaglechat.tui.widgets.transcript.wrapping import TEXT, Run, Wrapping
from eaglechat.wire.neutral import neutralise

FAINT = "faint"
"""The formats of `marks.py` stand after the ink in the name of a kind: `guessed strong`."""
COPY = "copy"
"""The kind of the word at the end of a code block, which a click copies."""

_CUT_FROM = 200
"""A line longer than this, in characters, is drawn for good up to a place where no format is open:
the open part of a line is drawn again for every frame."""
_HIDDEN = "hidden"

_FENCE = re.compile(r"\s{0,99}(?P<marks>`{3,}|~{3,})(?P<language>[^`]{0,99})$")
_HEADING = re.compile(r"#{1,6}(?: +|$)")
_QUOTE = re.compile(r" {0,3}(?:> ?)+")
_ITEM = re.compile(r"\s{0,99}(?:[-*+]|\d{1,9}[.)]) +")


class _Span(NamedTuple):
    """Characters of a line up to before `stop`, and their format; the span before it ends where
    this one begins."""

    stop: int
    format: str


@dataclass(frozen=True)
class _Line:
    """How a line is drawn, as its beginning tells."""

    marker_length: int = 0
    """Characters of the Markdown marker: `## `, `> `, `- `."""
    format: str = ""
    shows_mark: bool = True
    margin: str = ""
    now: str = ""
    """As in `Wrapping.indent`."""
    is_literal: bool = False
    """Its text is shown as it is written."""
    ends_code: bool = False


@dataclass(frozen=True)
class _State:
    """What the lines before it say about the next line."""

    fence: str = ""
    """The marks that opened the code block; empty outside of one."""
    line: _Line | None = None
    """Set if the line has begun: its beginning is drawn for good."""
    before: str = ""
    """The last character of that beginning."""


class FormattedText:
    """Rows of a text that grows. Complete lines are drawn once; only the last line is drawn
    again."""

    def __init__(self, width: int) -> None:
        self.wrapping = Wrapping(width)
        self._open: list[Run] = []
        """What is known of the line that is not complete."""
        self._state, self._base = _State(), self.wrapping.here()
        """Those at the beginning of the open text."""

    def update(self, added: Iterable[Run], rejected: Iterable[Run] = ()) -> int:
        """Add text, and show rejected guesses behind it until the next call: only as far as the
        last row has room, so that they move nothing. Returns the first row that is not as it
        was."""
        first = self._base.rows - 1
        before = self.wrapping.rows[first:]
        self._settle(added)
        if sum(len(run.text) for run in self._open) > _CUT_FROM:
            self._cut()
        self._draw_open(is_over=False)
        last = self.wrapping.rows[-1].pieces[-1:]
        for run in rejected if not last or last[0].style != COPY else ():
            text = neutralise(run.text)
            self.wrapping.append_if_it_fits(text if text[:1] == " " else f" {text}", run.kind)
        return first + _same(before, self.wrapping.rows[first:])

    def end(self, settled: Iterable[Run], notes: Iterable[Run]) -> int:
        """Add the end of the text, and what is said below it, which is not formatted."""
        first = self._base.rows - 1
        before = self.wrapping.rows[first:]
        self._settle(settled)
        self._draw_open(is_over=True)
        for run in notes:
            self.wrapping.append(neutralise(run.text), run.kind, copied=run.copied)
        return first + _same(before, self.wrapping.rows[first:])

    def _settle(self, runs: Iterable[Run]) -> None:
        self._open += runs
        *complete, last = _lines(self._open)
        if complete:
            self.wrapping.go_back(self._base)
            for line in complete:
                self._state = self._draw_line(line, self._state, is_over=True)
                self.wrapping.append("\n", TEXT)
            self._open, self._base = last, self.wrapping.here()

    def _cut(self) -> None:
        source, state = _source(self._open), self._state
        line = state.line or _line_of(source, state.fence, is_over=False)
        _, place = _spans(source, state, line, is_over=False)
        if place > (0 if state.line else line.marker_length):
            drawn, self._open = _split(self._open, place)
            self.wrapping.go_back(self._base)
            self._draw_spans(drawn, state, line, is_over=True)
            fence = state.fence if state.line else _fence_after(source, state.fence)
            self._state = _State(fence, line, before=source[place - 1])
            self._base = self.wrapping.here()

    def _draw_open(self, *, is_over: bool) -> None:
        self.wrapping.go_back(self._base)
        self._draw_line(self._open, self._state, is_over=is_over)

    def _draw_line(self, runs: Sequence[Run], state: _State, *, is_over: bool) -> _State:
        """Draw a line, or the rest of one, and return the state after it. `is_over` says that it
        is complete."""
        source = _source(runs)
        line = state.line or _line_of(source, state.fence, is_over)
        self._draw_spans(runs, state, line, is_over=is_over)
        return _State(state.fence if state.line else _fence_after(source, state.fence))

    def _draw_spans(
        self, runs: Sequence[Run], state: _State, line: _Line, *, is_over: bool
    ) -> None:
        self.wrapping.indent(line.margin, FAINT, now="" if state.line else line.now)
        spans, _ = _spans(_source(runs), state, line, is_over)
        for text, kind, copied in _merged(_formatted(runs, spans)):
            if kind == _HIDDEN:
                self.wrapping.hide(text)
            else:
                self.wrapping.append(text, kind, copied=copied)
        if line.ends_code:
            self.wrapping.append("copy", COPY, copied=False)


def _lines(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs of each line, without the line breaks."""
    lines: list[list[Run]] = [[]]
    for run in runs:
        first, *others = neutralise(run.text).split("\n")
        lines[-1].append(Run(first, run.kind, run.copied))
        lines += ([Run(other, run.kind, run.copied)] for other in others)
    return lines


def _source(runs: Iterable[Run]) -> str:
    return "".join(run.text for run in runs if run.copied)


def _same(before: Sequence[object], after: Sequence[object]) -> int:
    """How many of the first rows are the same."""
    pairs = enumerate(zip(before, after, strict=False))
    shorter = min(len(before), len(after))
    return next((place for place, (old, new) in pairs if old != new), shorter)


def _fence_after(source: str, fence: str) -> str:
    found = _FENCE.match(source)
    if not fence:
        return found["marks"] if found else ""
    return "" if _closes(source, fence) else fence


def _closes(source: str, fence: str) -> bool:
    return source.strip().startswith(fence) and not source.strip().strip(fence[0])


def _line_of(source: str, fence: str, is_over: bool) -> _Line:
    whole = len(source)
    if fence and _closes(source, fence):
        return _Line(whole, FAINT, shows_mark=False, now="╰ ", ends_code=True)
    if fence:
        return _Line(margin="│ ", now="│ ", is_literal=True)
    line = _Line(is_literal=source.startswith("|"))
    if found := _FENCE.match(source):
        mark = found.end("marks")
        line = _Line(mark, FAINT, shows_mark=False, margin="│ ", now="╭ ", is_literal=True)
    elif found := _HEADING.match(source):
        if not is_over or found.end() < whole:
            line = _Line(found.end(), STRONG, shows_mark=False)
    elif found := _QUOTE.match(source):
        line = _Line(found.end(), shows_mark=False, margin="│ ", now="│ ")
    elif found := _ITEM.match(source):
        line = _Line(found.end(), margin=" " * found.end())
    return line


def _spans(source: str, state: _State, line: _Line, is_over: bool) -> tuple[list[_Span], int]:
    """The spans of a line, or of the rest of one, and up to where no text that follows can change
    them."""
    start = 0 if state.line else line.marker_length
    spans = [_Span(start, "" if line.shows_mark else _HIDDEN)] if start else []
    if line.is_literal:
        return [*spans, _Span(len(source), line.format)], len(source)
    marks, place = marks_of(source, start, state.before, is_over)
    open_formats = Counter([line.format] if line.format else [])
    for mark in marks:
        spans.append(_Span(mark.start, " ".join(open_formats)))
        spans.append(_Span(mark.stop, _HIDDEN))
        open_formats[mark.format] += 1 if mark.opens else -1
        open_formats += Counter()  # drops what is closed
    return [*spans, _Span(len(source), " ".join(open_formats))], place


def _split(runs: Iterable[Run], place: int) -> tuple[list[Run], list[Run]]:
    """The runs before and after a character of their source."""
    before: list[Run] = []
    after: list[Run] = []
    for run in runs:
        size = min(place, len(run.text)) if run.copied else 0
        before += [run._replace(text=run.text[:size])] if size else []
        after += [run._replace(text=run.text[size:])] if size < len(run.text) else []
        place -= size
    return before, after


def _formatted(runs: Iterable[Run], spans: Iterable[_Span]) -> Iterator[Run]:
    """The runs, cut where spans end, each of the kind of its ink and its format."""
    formats = iter(spans)
    span, at = _Span(0, ""), 0
    for run in runs:
        if not run.copied:
            yield run
            continue
        begin, end = at, at + len(run.text)
        while at < end:
            while span.stop <= at:
                span = next(formats)
            kind = f"{run.kind} {span.format}" if span.format else run.kind
            stop = min(end, span.stop)
            shown = run.text[at - begin : stop - begin]
            yield Run(shown, span.format if span.format in (_HIDDEN, FAINT) else kind)
            at = stop


def _merged(runs: Iterable[Run]) -> Iterator[Run]:
    """Join neighbouring runs of one kind: fewer pieces wrap faster."""
    texts: list[str] = []
    kind, copied = "", True
    for run in runs:
        if texts and (run.kind, run.copied) != (kind, copied):
            yield Run("".join(texts), kind, copied)
            texts = []
        texts.append(run.text)
        kind, copied = run.kind, run.copied
    if texts:
        yield Run("".join(texts), kind, copied)

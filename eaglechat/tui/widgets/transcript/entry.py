"""Entries of the transcript: wrapped text, drawn row by row, with a marker for the speaker.

A selection refers to the copied text only: its offsets are a line and a character of that text. It
therefore survives a resize, and text that is shown but not copied can never be copied.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.reactive import Reactive
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from eaglechat.chat.conversation.turns import TurnId
from eaglechat.tui.widgets.transcript.rows import PROSE_CELLS
from eaglechat.tui.widgets.transcript.token_styles import TokenStyled
from eaglechat.tui.widgets.transcript.wrapping import TEXT, Piece, Row, Run, Wrapping
from eaglechat.wire.neutral import neutralise
from eaglechat.words.timeline import SiblingNumber

MARKER_CELLS = 2
_MARKED = Style(reverse=True)
_STEP = "step"
"""Meta key of a cell: how many siblings a click on it moves on; negative moves back."""


class Body(Protocol):
    """The rows that an entry draws, and the text that it copies."""

    @property
    def rows(self) -> list[Row]: ...
    @property
    def text(self) -> str: ...


class TranscriptEntry(TokenStyled):
    """Base of everything in a transcript. A subclass returns its text from `runs()`."""

    COMPONENT_CLASSES = {"entry--marker", "entry--note", "entry--place"}
    DEFAULT_CSS = """
    TranscriptEntry {
        width: 100%;
        height: auto;
        margin: 0 0 1 0;
        color: $foreground;
    }
    TranscriptEntry > .entry--marker {
        color: $primary;
        text-style: bold;
    }
    TranscriptEntry > .entry--note {
        color: $text-muted;
        text-style: italic;
    }
    TranscriptEntry > .entry--place {
        color: $accent;
    }
    TranscriptEntry.-selected {
        background: $primary 15%;
    }
    TranscriptEntry.-selected > .entry--marker {
        text-style: bold reverse;
    }
    """

    marker = " "

    # Textual's own `virtual_size` asks for another layout when a layout sets it: two layouts for
    # every new row.
    virtual_size = Reactive(Size(0, 0), repaint=False)

    def __init__(self) -> None:
        super().__init__()
        self._wrapping = Wrapping(0)
        self._wrapped = False
        self._strips: dict[int, Strip] = {}
        self._styles: dict[str, Style] = {}
        self.turn: TurnId | None = None
        self._place: SiblingNumber | None = None
        self._mark: tuple[int, int] | None = None
        self._drawn_mark: Selection | None = None
        """`_mark` as a selection of the drawn text; None until it is computed."""

    @dataclass
    class Chosen(Message):
        """The reader clicked on an entry of this turn."""

        turn: TurnId

    @dataclass
    class Stepped(Message):
        """The reader clicked on an arrow beside a turn's number among its siblings."""

        turn: TurnId
        by: int

    def set_turn(self, turn: TurnId | None, place: SiblingNumber | None) -> None:
        """Set the turn that the entry belongs to, and that turn's number among its siblings, which
        is drawn in an extra row at the top."""
        self.turn = turn
        if place != self._place:
            self._place = place
            self._strips.clear()
            self.refresh(layout=True)

    @abstractmethod
    def runs(self) -> Iterator[Run]:
        """The text of the whole entry, in its current state."""

    @property
    def body(self) -> Body:
        """The rows that are drawn now."""
        return self._wrapping

    @property
    def body_width(self) -> int:
        """The cells in a row for text, without the marker; 0 until the first layout."""
        return self._wrapping.width if self._wrapped else 0

    def append(self, runs: Iterator[Run]) -> None:
        """Draw these runs at the end. `runs()` must already include them."""
        if not self._wrapped:
            return
        last = len(self._wrapping.rows) - 1
        self._add(runs)
        self.rows_changed(last, len(self._wrapping.rows) - 1 == last)

    def mark(self, span: tuple[int, int] | None) -> None:
        """Highlight the passage from the first to before the second character offset of the text;
        None highlights nothing."""
        self._mark, self._drawn_mark = span, None
        self._strips.clear()
        self.refresh()

    def drawn_span(self, span: tuple[int, int]) -> tuple[int, int]:
        """Where the passage `span` of the text is in the drawn text; empty if it is not drawn."""
        return span

    def row_of(self, character: int) -> int:
        """The row in which this character of the text is drawn. If the marked passage begins there,
        the row in which that passage begins."""
        here = (character, character)
        span = self._mark if self._mark and self._mark[0] == character else here
        start, _ = self.drawn_span(span)
        at = _position(self.body.text, start)
        rows = [
            number
            for number, row in enumerate(self.body.rows)
            if (row.line, row.start) <= (at.y, at.x)
        ]
        return self._rows_above + (rows[-1] if rows else 0)

    def rewrap(self) -> None:
        """Wrap the whole text again."""
        if self._wrapped:
            self._wrap(self._wrapping.width)
            self.rows_changed(0, same_height=False)

    def rows_changed(self, first: int, same_height: bool) -> None:
        """Redraw the rows from `first` on, and ask for a layout unless the height is the same."""
        self._drawn_mark = None
        first += self._rows_above
        for y in [y for y in self._strips if y >= first]:
            del self._strips[y]
        changed = Region(0, first, self.size.width, self._rows_above + len(self.body.rows) - first)
        self.refresh(changed, layout=not same_height)

    def forget_drawn_rows(self) -> None:
        """Free the drawn rows, which take most of an entry's memory. They are drawn again when they
        are next visible."""
        self._strips.clear()

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        columns = min(max(1, width - MARKER_CELLS), PROSE_CELLS)
        if columns != self.body_width:
            self._wrap(columns)
            self._strips.clear()
        return self._rows_above + len(self.body.rows)

    @property
    def _rows_above(self) -> int:
        return 0 if self._place is None else 1

    def render_line(self, y: int) -> Strip:
        if y not in self._strips:
            self._strips[y] = self.draw_row(y)
        return self._strips[y]

    def render_lines(self, crop: Region) -> list[Strip]:
        if not self.is_attached:
            # A removed entry has no styles, but stays on the screen until the next layout.
            return [Strip.blank(crop.width)] * crop.height
        # Textual's cache of lines is of no use: it is emptied whenever the entry grows.
        strips = filtered(self, [self.render_line(y) for y in crop.line_range])
        if crop.column_span == (0, self.size.width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract(self.body.text), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self._strips.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles.clear()
        self._strips.clear()

    def style_of(self, kind: str) -> Style:
        """The style of a kind of text, combined with the entry's own style."""
        if kind not in self._styles:
            self._styles[kind] = self._find_style(kind)
        return self._styles[kind]

    def _find_style(self, kind: str) -> Style:
        if kind == TEXT:
            return self.rich_style
        prefix = "entry" if kind in {"marker", "note", "place"} else "token"
        return self.get_component_rich_style(f"{prefix}--{kind}")

    def _wrap(self, width: int) -> None:
        self._wrapping = Wrapping(width)
        self._wrapped = True
        self._add(self.runs())

    def _add(self, runs: Iterator[Run]) -> None:
        for run in runs:
            self._wrapping.append(neutralise(run.text), run.kind, copied=run.copied)

    def draw_row(self, y: int) -> Strip:
        base = self.style_of(TEXT)
        width = self.size.width
        rows = self.body.rows
        place = y - self._rows_above
        if place >= len(rows):
            return Strip.blank(width, base)
        if place < 0:
            segments = [*self._marker(Row(0, 0), y), *self._place_segments()]
        else:
            segments = [*self._marker(rows[place], y), *self._segments(rows[place])]
        return Strip(segments).adjust_cell_length(width, base)

    def _marker(self, row: Row, y: int) -> Iterator[Segment]:
        # Without this offset, a selection that begins on the marker would begin at the row's end.
        style = self.style_of("marker") + _offset(row.start, row.line)
        yield from (Segment(cell, style) for cell in f"{self.marker if y == 0 else ' '} ")
        yield Segment("", style)

    def _place_segments(self) -> Iterator[Segment]:
        assert self._place is not None
        style, number, count = self.style_of("place"), self._place.number, self._place.count
        older = Style.from_meta({_STEP: -1}) if number > 1 else Style(dim=True)
        newer = Style.from_meta({_STEP: 1}) if number < count else Style(dim=True)
        yield Segment("◂ ", style + older)
        yield Segment(f"{number}/{count}", style)
        yield Segment(" ▸", style + newer)

    def on_click(self, event: events.Click) -> None:
        if self.text_selection is not None:
            return
        event.stop()
        meta, at = event.style.meta, None
        if "offset" in meta:
            # That of the style is the offset of all the text that is drawn alike.
            _, at = self.screen.get_widget_and_offset_at(*event.screen_offset)
        if not self.clicked_on(meta, at):
            self.clicked(at)

    def clicked_on(self, meta: Mapping[str, Any], at: Offset | None) -> bool:
        """Do what a click on a cell with these meta values means, or on the character and line `at`
        of the copied text. Returns whether it meant anything."""
        by = meta.get(_STEP)
        if by and self.turn is not None:
            self.post_message(self.Stepped(self.turn, by))
        return bool(by)

    def clicked(self, at: Offset | None) -> None:
        """The entry was clicked and no text selected. `at` is a character and a line of the copied
        text."""
        if self.turn is not None:
            self.post_message(self.Chosen(self.turn))

    def _segments(self, row: Row) -> Iterator[Segment]:
        # Only the background: the selection's text colour would hide the colours of the origins.
        highlight = Style(bgcolor=self.selection_style.bgcolor)
        spans = (self._selected_span(row.line), self._marked_span(row.line))
        for piece in _merged(row.pieces):
            style = self.style_of(piece.style) if isinstance(piece.style, str) else piece.style
            for shown, start, (is_selected, is_marked) in _cut(piece, spans):
                full = style + highlight if is_selected else style
                full = full + _MARKED if is_marked else full
                yield Segment(shown, full + _offset(start, row.line))

    def _selected_span(self, line: int) -> tuple[int, int]:
        return self._span(self.text_selection, line)

    def _marked_span(self, line: int) -> tuple[int, int]:
        if self._mark is None:
            return 0, 0
        if self._drawn_mark is None:
            text = self.body.text
            start, stop = (_position(text, one) for one in self.drawn_span(self._mark))
            self._drawn_mark = Selection(start, stop)
        return self._span(self._drawn_mark, line)

    def _span(self, selection: Selection | None, line: int) -> tuple[int, int]:
        span = selection.get_span(line) if selection is not None else None
        if span is None:
            return 0, 0
        start, stop = span
        return start, stop if stop != -1 else len(self.body.text)


class QuestionEntry(TranscriptEntry):
    """A question of the user, as it was typed."""

    DEFAULT_CSS = """
    QuestionEntry {
        background: $surface;
        text-style: none;
    }
    QuestionEntry > .entry--marker {
        color: $accent;
    }
    """

    marker = ">"

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def runs(self) -> Iterator[Run]:
        yield Run(self._text, TEXT)


class NoticeEntry(QuestionEntry):
    """A message of the app about the conversation."""

    DEFAULT_CSS = """
    NoticeEntry {
        background: transparent;
        color: $text-muted;
    }
    NoticeEntry.-warning, NoticeEntry.-warning > .entry--marker {
        color: $text-warning;
    }
    NoticeEntry.-error, NoticeEntry.-error > .entry--marker {
        color: $text-error;
    }
    """

    MARKERS = {"information": "i", "warning": "!", "error": "x"}

    def __init__(self, text: str, severity: str) -> None:
        super().__init__(text)
        self.marker = self.MARKERS[severity]
        self.add_class(f"-{severity}")


class WindowMark(TranscriptEntry):
    """Marks that all messages above it have left the context."""

    DEFAULT_CSS = """
    WindowMark > .entry--marker {
        color: $text-muted;
    }
    """

    marker = "↑"

    def runs(self) -> Iterator[Run]:
        yield Run("Older messages are no longer in the context.", "note", copied=False)


def filtered(widget: Widget, strips: list[Strip]) -> list[Strip]:
    """Apply a widget's line filters, such as the one that removes colours, to its strips."""
    _base, background = widget.background_colors
    for line_filter in widget.get_line_filters():
        strips = [strip.apply_filter(line_filter, background) for strip in strips]
    return strips


def _offset(x: int, y: int) -> Style:
    return Style.from_meta({"offset": (x, y)})


def _stretched(piece: Piece) -> bool:
    return len(piece.shown) > piece.stop - piece.start


def _merged(pieces: list[Piece]) -> Iterator[Piece]:
    """Join neighbouring pieces of the same style: fewer segments draw faster."""
    open_piece: Piece | None = None
    for piece in pieces:
        if open_piece is None:
            open_piece = piece
        elif piece.style == open_piece.style and not _stretched(piece) | _stretched(open_piece):
            shown = open_piece.shown + piece.shown
            open_piece = Piece(shown, piece.style, open_piece.start, piece.stop)
        else:
            yield open_piece
            open_piece = piece
    if open_piece is not None:
        yield open_piece


def _position(text: str, character: int) -> Offset:
    """The column and the line of a character offset."""
    before = text[:character]
    line = before.count("\n")
    return Offset(character - (before.rfind("\n") + 1), line)


def _cut(
    piece: Piece, spans: Sequence[tuple[int, int]]
) -> Iterator[tuple[str, int, tuple[bool, ...]]]:
    """Cut a piece where spans begin and end. Yields, for each part, its shown text, its start, and
    for each span whether the part is inside it."""
    if _stretched(piece):
        within = tuple(
            begin < piece.stop and piece.start < end and piece.start < piece.stop
            for begin, end in spans
        )
        for character in piece.shown:
            yield character, piece.start, within
        return
    edges = (edge - piece.start for span in spans for edge in span)
    size = len(piece.shown)
    cuts = sorted({0, size} | {edge for edge in edges if 0 < edge < size})
    for left, right in itertools.pairwise(cuts):
        start = piece.start + left
        yield piece.shown[left:right], start, tuple(begin <= start < end for begin, end in spans)

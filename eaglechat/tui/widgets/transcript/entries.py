"""What the transcript draws of each entry: plain objects that hold its text in rows for one width.

Offsets are a line and a character of the text that the entry copies. They therefore survive a
resize, and text that is shown but not copied can never be copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from textual.geometry import Offset
from textual.strip import Strip

from eaglechat.settings.model import View
from eaglechat.tui.themes import REJECTED
from eaglechat.tui.widgets.transcript.formatting import FormattedText
from eaglechat.tui.widgets.transcript.markdown import (
    CODE,
    LINK,
    Code,
    MarkdownLook,
    RenderedMarkdown,
    code_ending_at,
    link_at,
    render,
    same_passage,
)
from eaglechat.tui.widgets.transcript.rows import MARGIN
from eaglechat.tui.widgets.transcript.token_styles import GUESSED, NGRAM_KIND
from eaglechat.tui.widgets.transcript.wrapping import TEXT, Row, Run, Wrapping
from eaglechat.wire.neutral import neutralise
from eaglechat.wire.records import NGRAM, DraftToken, Origin, Part, Round, Token
from eaglechat.words.timeline import Entry
from eaglechat.words.wording import VISIBLE_WHITESPACE

NOTE = "note"
"""The kind of what is said below a reply."""
MARKERS = {
    "question": ">",
    "information": "i",
    "warning": "!",
    "error": "x",
    "window": "↑",
    "reply": "•",
    "thought": "~",
}
_GUESSES = (Origin.ACCEPTED.value, NGRAM_KIND)
_WINDOW = "Older messages are no longer in the context."
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Look:
    """How replies are drawn: in which view, and how wide and in which styles their Markdown is."""

    view: View
    markdown: MarkdownLook

    @property
    def width(self) -> int:
        """The cells in a row for text."""
        return self.markdown.width


class DrawnEntry:
    """A question, a notice, or the mark where the context begins."""

    def __init__(self, entry: Entry, look: Look) -> None:
        self.entry, self.look = entry, look
        self.body: Wrapping | RenderedMarkdown = Wrapping(look.width)
        """The rows, and the text that they copy."""
        self.strips: dict[int, Strip] = {}
        """The rows that were drawn, by their numbers within the entry; the transcript's."""
        self._wrap()

    def _wrap(self) -> None:
        if self.entry.kind == "window":
            _add([Run(_WINDOW, NOTE, copied=False)], self.wrapping)
        else:
            _add([Run(self.entry.text, TEXT)], self.wrapping)

    @property
    def wrapping(self) -> Wrapping:
        assert isinstance(self.body, Wrapping)
        return self.body

    @property
    def rows_above(self) -> int:
        """Rows above the text: one for the number among siblings."""
        return 0 if self.entry.place is None else 1

    @property
    def height(self) -> int:
        """In rows, with the margin below it."""
        return self.rows_above + len(self.body.rows) + MARGIN

    @property
    def end(self) -> Offset:
        """Where the text ends."""
        return position(self.body.text, len(self.body.text))

    def drawn_span(self, span: tuple[int, int]) -> tuple[int, int]:
        """Where the passage `span` of the entry's text is in the copied text; empty if it is not
        drawn."""
        return span

    def row_of(self, span: tuple[int, int]) -> int:
        """The row in which this passage of the entry's text begins."""
        at = position(self.body.text, self.drawn_span(span)[0])
        before = [
            number
            for number, row in enumerate(self.body.rows)
            if (row.line, row.start) <= (at.y, at.x)
        ]
        return self.rows_above + (before[-1] if before else 0)

    def text_row(self, y: int) -> Row | None:
        """The row of text that is row `y` of the entry; None above and below the text."""
        place, rows = y - self.rows_above, self.body.rows
        return rows[place] if 0 <= place < len(rows) else None

    def code_at(self, meta: Mapping[str, Any], at: Offset | None) -> Code | None:
        """The code block that a click at this offset of the text copies."""
        return None

    def link_at(self, meta: Mapping[str, Any], at: Offset | None) -> str | None:
        """The address that is written at this offset of the text."""
        return None


class ReplyEntry(DrawnEntry):
    """A part of a recording, which the model may still be writing: text in two inks, formatted
    while it is written (live); Markdown once it is over (read); tokens in the styles of their
    origins, with the rejected ones (trace)."""

    def __init__(self, entry: Entry, look: Look, *, is_folded: bool = False) -> None:
        assert entry.recording is not None
        self.recording = entry.recording
        self.part = Part.REASONING if entry.kind == "thought" else Part.ANSWER
        self.is_folded = is_folded
        """Whether only one line is drawn, which says how long the reasoning took."""
        self._note = entry.below()
        self._drawn = 0
        """How many rounds are drawn."""
        self._has_settled = False
        self.problem = ""
        """Why it could not be drawn as Markdown."""
        self._formatted: FormattedText | None = None
        super().__init__(entry, look)

    @property
    def text(self) -> str:
        """The text of the part exactly as it was generated, without rejected tokens."""
        is_answer = self.part is Part.ANSWER
        return self.recording.text if is_answer else self.recording.reasoning

    @property
    def is_rendered(self) -> bool:
        """Whether it is drawn as Markdown."""
        return isinstance(self.body, RenderedMarkdown)

    def follow(self) -> int | None:
        """Draw what was written since. Returns the first row of the entry that changed, None if
        none did."""
        if self.recording.is_settled and not self._has_settled:
            self._wrap()
            return 0
        if self._note is not None or self._drawn == len(self.recording.rounds):
            return None
        return self.rows_above + self._write()

    def _wrap(self) -> None:
        self._drawn, self._has_settled = 0, self.recording.is_settled
        self._formatted, width = None, self.look.width
        if self.is_folded:
            self.body = Wrapping(width)
            note = _in_one_line(self._note or "", width - 2)
            _add([Run(f"▸ {note}", NOTE, copied=False)], self.body)
            return
        is_over = self._note is not None
        if self.look.view == "read" and is_over and self.part is Part.ANSWER:
            text, note = neutralise(self.text), neutralise(self._note or "")
            try:
                self.body = render(text, note, self.look.markdown)
            except Exception as error:
                # Whatever a model writes, a fault of the renderer must not end the app.
                self.problem = f"{error or type(error).__name__}"
            else:
                return
        if self.look.view == "trace":
            self.body = Wrapping(width)
        else:
            self._formatted = FormattedText(width)
            self.body = self._formatted.wrapping
        self._write()

    def _write(self) -> int:
        """Draw the rounds that are not drawn. Returns the first row of the text that changed."""
        rounds = self.recording.rounds[self._drawn :]
        self._drawn += len(rounds)
        is_over = self._note is not None
        if self._formatted is None:
            first = len(self.wrapping.rows) - 1
            _add(self._runs_of(rounds), self.wrapping)
            if is_over:
                _add([*self._tail_runs(), *self._note_runs()], self.wrapping)
            return first
        if is_over:
            return self._formatted.end(
                [*self._inked(rounds), *self._tail_runs()], self._note_runs()
            )
        latest = self._runs_of(rounds[-1:]) if self.look.view == "live" else ()
        rejected = [run for run in latest if run.kind == REJECTED]
        return self._formatted.update(self._inked(rounds), rejected)

    def _inked(self, rounds: Sequence[Round]) -> Iterator[Run]:
        """The text of rounds in the two inks of the live view, or without any to be read."""
        for run in self._runs_of(rounds):
            if run.kind != REJECTED:
                is_guess = self.look.view == "live" and run.kind in _GUESSES
                yield Run(run.text, GUESSED if is_guess else TEXT)

    def _runs_of(self, rounds: Iterable[Round]) -> Iterator[Run]:
        return (run for round_ in rounds for run in _round_runs(round_, self.part))

    def _tail_runs(self) -> Iterator[Run]:
        end = self.recording.end
        if end is not None and (end.tail_part or Part.ANSWER) is self.part:
            yield Run(end.tail, TEXT)

    def _note_runs(self) -> Iterator[Run]:
        if self._note:
            if self.text:
                yield Run("\n", NOTE, copied=False)
            yield Run(self._note, NOTE, copied=False)

    def drawn_span(self, span: tuple[int, int]) -> tuple[int, int]:
        return same_passage(self.text, span, self.body.text) if self.is_rendered else span

    def round_at(self, at: Offset) -> int | None:
        """The index of the round that wrote the token at an offset; None where no token is."""
        body = self.body.text
        left = index(body, at)
        if self.is_rendered:
            spans = (word.span() for word in _WORD.finditer(body))
            word = next((one for one in spans if one[0] <= left < one[1]), None)
            if word is None:
                return None
            left = same_passage(body, word, neutralise(self.text))[0]
        for round_ in self.recording.rounds:
            for token in round_.tokens:
                if token.part is self.part:
                    left -= len(neutralise(token.text))
                    if left < 0:
                        return round_.index
        return None

    def code_at(self, meta: Mapping[str, Any], at: Offset | None) -> Code | None:
        if CODE not in meta:
            return None
        if isinstance(self.body, RenderedMarkdown):
            number: int = meta[CODE]
            return self.body.codes[number]
        return code_ending_at(self.body.text, at.y) if at else None

    def link_at(self, meta: Mapping[str, Any], at: Offset | None) -> str | None:
        if self.is_rendered or at is None:
            return meta.get(LINK)
        return link_at(self.body.text, at.y, at.x)


def position(text: str, character: int) -> Offset:
    """The character and the line of a character of a text."""
    before = text[:character]
    line = before.count("\n")
    return Offset(character - (before.rfind("\n") + 1), line)


def index(text: str, at: Offset) -> int:
    """The character of a text that is at this character of this line, or at the line's end."""
    lines = text.split("\n")
    if at.y >= len(lines):
        return len(text)
    return sum(len(line) + 1 for line in lines[: at.y]) + min(at.x, len(lines[at.y]))


def offset_in(row: Row, x: int) -> Offset | None:
    """The offset of what is drawn in cell `x` of a row; None if nothing is."""
    for piece in row.pieces:
        cells = cell_len(piece.shown)
        if x < cells:
            fits = len(piece.shown) == piece.stop - piece.start
            before = next(n for n in range(len(piece.shown)) if cell_len(piece.shown[: n + 1]) > x)
            return Offset(piece.start + (before if fits else 0), row.line)
        x -= cells
    return None


def _add(runs: Iterable[Run], wrapping: Wrapping) -> None:
    for run in runs:
        wrapping.append(neutralise(run.text), run.kind, copied=run.copied)


def _in_one_line(note: str, width: int) -> str:
    """Drop the last comma-separated parts of a note until it fits into `width` characters. The
    first part always stays."""
    while len(note) > width and ", " in note:
        note = note.rpartition(", ")[0]
    return note


def _round_runs(round_: Round, part: Part) -> Iterator[Run]:
    for token in round_.tokens_and_rejected(part):
        if isinstance(token, DraftToken):
            text = (token.text or "").translate(VISIBLE_WHITESPACE)
            yield Run(text, REJECTED, copied=False)
        else:
            yield Run(token.text, _kind_of(token))


def _kind_of(token: Token) -> str:
    if token.origin is Origin.UNKNOWN:
        return TEXT
    return NGRAM_KIND if token.drafter == NGRAM else token.origin.value

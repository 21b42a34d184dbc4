"""What the transcript draws of each entry: plain objects that hold its text in rows for one width.

Places are characters of the text that the entry copies. They therefore survive a resize, and text
that is shown but not copied can never be copied.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from textual.strip import Strip

from eaglechat.tui.themes import REJECTED
from eaglechat.tui.widgets.readouts import MUTED
from eaglechat.tui.widgets.transcript.formatting import PLAIN, GrowingText, Run
from eaglechat.tui.widgets.transcript.markdown import Look, render
from eaglechat.tui.widgets.transcript.token_styles import GUESSED, NGRAM_KIND
from eaglechat.tui.widgets.transcript.wrapping import TEXT, Row
from eaglechat.wire.neutral import neutralise
from eaglechat.wire.records import NGRAM, DraftToken, Origin, Part, Round, Token
from eaglechat.words.timeline import Entry
from eaglechat.words.wording import VISIBLE_WHITESPACE

MARGIN = 1
"""Empty rows below each entry."""
NOTE = "note"
"""The kind of what is said below a reply."""
KINDS = {
    "question": (">", "bold $accent", "$foreground"),
    "information": ("i", "bold $accent", MUTED),
    "warning": ("!", "bold $text-warning", "$text-warning"),
    "error": ("x", "bold $text-error", "$text-error"),
    "window": ("↑", f"bold {MUTED}", "$foreground"),
    "reply": ("•", "bold $primary", "$foreground"),
    "thought": ("~", f"bold {MUTED}", MUTED),
}
"""The marker of each kind of entry, its style, and that of the text."""
_GUESSES = (Origin.ACCEPTED.value, NGRAM_KIND)
_WINDOW = "Older messages are no longer in the context."


class DrawnEntry:
    """A question, a notice, or the mark where the context begins."""

    def __init__(self, entry: Entry, look: Look) -> None:
        self.entry, self.look = entry, look
        self.body = GrowingText(look.width, PLAIN)
        """The rows, and the text that they copy."""
        self.strips: dict[int, Strip] = {}
        """The rows that were drawn, by their numbers within the entry; the transcript's."""
        self._wrap()

    def _wrap(self) -> None:
        if self.entry.kind == "window":
            self.body.say(_WINDOW, NOTE)
        else:
            self.body.add([Run(self.entry.text, TEXT)])

    @property
    def rows_above(self) -> int:
        """Rows above the text: one for the number among siblings."""
        return 0 if self.entry.place is None else 1

    @property
    def height(self) -> int:
        """In rows, with the margin below it."""
        return self.rows_above + len(self.body.rows) + MARGIN

    def row_of(self, span: tuple[int, int]) -> int:
        """The row in which this passage of the text begins."""
        before = bisect_right([row[0].start for row in self.body.rows], span[0])
        return self.rows_above + max(0, before - 1)

    def text_row(self, y: int) -> Row | None:
        """The row of text that is row `y` of the entry; None above and below the text."""
        place, rows = y - self.rows_above, self.body.rows
        return rows[place] if 0 <= place < len(rows) else None


class ReplyEntry(DrawnEntry):
    """A part of a recording, which the model may still be writing: text in two inks, formatted
    while it is written (live); the same in one ink, with tables and coloured code once it is over
    (read); tokens in the styles of their
    origins, with the rejected ones (trace)."""

    def __init__(self, entry: Entry, look: Look, *, is_folded: bool) -> None:
        assert entry.recording is not None
        self.recording = entry.recording
        self.part = Part.REASONING if entry.kind == "thought" else Part.ANSWER
        self.is_folded = is_folded
        """Whether only one line is drawn, which says how long the reasoning took."""
        self._note = entry.below()
        self._drawn = 0
        """How many rounds are drawn."""
        self._has_settled = False
        super().__init__(entry, look)

    @property
    def text(self) -> str:
        """The text of the part exactly as it was generated, without rejected tokens."""
        is_answer = self.part is Part.ANSWER
        return self.recording.text if is_answer else self.recording.reasoning

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
        width, view = self.look.width, self.look.view
        self.body = GrowingText(width, PLAIN if view == "trace" or self.is_folded else None)
        if self.is_folded:
            self.body.say(f"▸ {_in_one_line(self._note or '', width - 2)}", NOTE)
            return
        if view == "read" and self._note is not None and self.part is Part.ANSWER:
            self.body = render(neutralise(self.text), self.look)
            self._say_note()
        else:
            self._write()

    def _write(self) -> int:
        """Draw the rounds that are not drawn. Returns the first row of the text that changed."""
        rounds = self.recording.rounds[self._drawn :]
        self._drawn += len(rounds)
        runs = (run for round_ in rounds for run in _round_runs(round_, self.part))
        if self.look.view != "trace":
            runs = (self._inked(run) for run in runs if run.kind != REJECTED)
        if self._note is None:
            latest = rounds[-1:] if self.look.view == "live" else ()
            last = (run for round_ in latest for run in _round_runs(round_, self.part))
            return self.body.add(runs, "".join(run.text for run in last if run.kind == REJECTED))
        end = self.recording.end
        has_tail = end is not None and (end.tail_part or Part.ANSWER) is self.part
        tail = [Run(end.tail, TEXT)] if end is not None and has_tail else []
        first = self.body.add([*runs, *tail], is_over=True)
        self._say_note()
        return first

    def _say_note(self) -> None:
        if self._note:
            self.body.say(self._note, NOTE)

    def _inked(self, run: Run) -> Run:
        """A run in one of the two inks of the live view, or in none to be read."""
        is_guess = self.look.view == "live" and run.kind in _GUESSES
        return run._replace(kind=GUESSED if is_guess else TEXT)

    def round_at(self, at: int) -> int | None:
        """The index of the round that wrote the token at a character; None where no token is."""
        for round_ in self.recording.rounds:
            for token in round_.tokens:
                if token.part is self.part:
                    at -= len(neutralise(token.text))
                    if at < 0:
                        return round_.index
        return None


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

"""What the transcript draws of each entry: plain objects that hold its text in rows for one width.
Those near what is seen are wrapped; the others have an estimated height.

Places are characters of the text that the entry copies. They therefore survive a resize, and text
that is shown but not copied can never be copied.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate

from textual.strip import Strip

from eaglechat.chat.recording import Recording
from eaglechat.tui.themes import GUESSED, MUTED, NGRAM_KIND, REJECTED
from eaglechat.tui.widgets.transcript.formatting import PLAIN, GrowingText, Run
from eaglechat.tui.widgets.transcript.markdown import Look, render
from eaglechat.tui.widgets.transcript.wrapping import TEXT, Row
from eaglechat.wire.records import NGRAM, DraftToken, Origin, Part, Round
from eaglechat.words.neutral import neutralise
from eaglechat.words.timeline import Entry
from eaglechat.words.wording import VISIBLE_WHITESPACE, fitting

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
_NARROW = 20


class DrawnEntry:
    """What is drawn of an entry, for one look. Before its rows are needed, it only has an estimated
    height.

    Of a recording, which the model may still be writing: text in two inks, formatted while it is
    written (live); the same in one ink, with tables and coloured code once it is over (read);
    tokens in the styles of their origins, with the rejected ones (trace).
    """

    def __init__(self, entry: Entry, look: Look, *, is_unfolded: bool) -> None:
        self.entry, self.look = entry, look
        self.part = Part.REASONING if entry.kind == "thought" else Part.ANSWER
        is_over_thought = entry.kind == "thought" and entry.note is not None
        self.is_folded = is_over_thought and not is_unfolded
        """Whether only one line is drawn, which says how long the reasoning took."""
        self.strips: dict[int, Strip] = {}
        """The rows that were drawn, by their numbers within the entry; the transcript's."""
        self._n_rounds = 0
        """How many rounds are drawn."""
        self._has_settled = False
        self.height, self.is_measured = self._estimate() + MARGIN, False
        """In rows, with the margin below it."""

    def _estimate(self) -> int:
        entry = self.entry
        if entry.kind == "window" or self.is_folded:
            return 1
        text = entry.recording.written(self.part) if entry.recording else entry.text
        rows = 1 + text.count("\n") + len(text) // max(self.look.width, _NARROW)
        return self.rows_above + rows + bool(entry.note)

    def measure(self) -> None:
        self.height, self.is_measured = self.rows_above + len(self.body.rows) + MARGIN, True

    @property
    def rows_above(self) -> int:
        """Rows above the text: one for the number among siblings."""
        return 0 if self.entry.place is None else 1

    def row_of(self, span: tuple[int, int]) -> int:
        """The row in which this passage of the text begins."""
        before = bisect_right([row[0].start for row in self.body.rows], span[0])
        return self.rows_above + max(0, before - 1)

    def text_row(self, y: int) -> Row | None:
        """The row of text that is row `y` of the entry; None above and below the text."""
        place, rows = y - self.rows_above, self.body.rows
        return rows[place] if 0 <= place < len(rows) else None

    @cached_property
    def body(self) -> GrowingText:
        """The rows, and the text that they copy."""
        entry, recording, look = self.entry, self.entry.recording, self.look
        is_plain = recording is None or self.is_folded or look.view == "trace"
        body = GrowingText(look.width, PLAIN if is_plain else None)
        if recording is None:
            if entry.kind == "window":
                body.say("Older messages are no longer in the context.", NOTE)
            else:
                body.add([Run(entry.text, TEXT)])
            return body
        self._n_rounds, self._has_settled = 0, recording.is_settled
        note = entry.below()
        if self.is_folded:
            body.say(f"▸ {fitting(note or '', look.width - 2)}", NOTE)
            return body
        if look.view == "read" and note is not None and self.part is Part.ANSWER:
            body = render(neutralise(recording.text), look)
        else:
            self._write(body, recording)
        if note:
            body.say(note, NOTE)
        return body

    def follow(self) -> int | None:
        """Draw what was written since. Returns the first row of the entry that changed, None if
        none did."""
        recording = self.entry.recording
        if recording is None:
            return None
        if recording.is_settled and not self._has_settled:
            del self.body
            return 0
        if self.entry.note is not None or self._n_rounds == len(recording.rounds):
            return None
        return self.rows_above + self._write(self.body, recording)

    def _write(self, body: GrowingText, recording: Recording) -> int:
        """Draw the rounds that are not drawn. Returns the first row of the text that changed."""
        rounds = recording.rounds[self._n_rounds :]
        self._n_rounds += len(rounds)
        runs = (run for round_ in rounds for run in _round_runs(round_, self.part))
        if self.look.view != "trace":
            # In one of the two inks of the live view, or in none to be read.
            guessed = GUESSED if self.look.view == "live" else TEXT
            runs = (
                run._replace(kind=guessed if run.kind in _GUESSES else TEXT)
                for run in runs
                if run.kind != REJECTED
            )
        if self.entry.note is None:
            latest = rounds[-1:] if self.look.view == "live" else ()
            last = (run for round_ in latest for run in _round_runs(round_, self.part))
            return body.add(runs, "".join(run.text for run in last if run.kind == REJECTED))
        end = recording.end
        has_tail = end is not None and (end.tail_part or Part.ANSWER) is self.part
        tail = [Run(end.tail, TEXT)] if end is not None and has_tail else []
        return body.add([*runs, *tail], is_over=True)

    def round_at(self, at: int) -> int | None:
        """The index of the round that wrote the token at a character; None where no token is."""
        for round_ in self.entry.recording.rounds if self.entry.recording else ():
            for token in round_.tokens:
                if token.part is self.part:
                    at -= len(neutralise(token.text))
                    if at < 0:
                        return round_.index
        return None


class Rows:
    """The entries and their heights, for one look."""

    def __init__(self) -> None:
        self.drawn: list[DrawnEntry] = []
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
        self.place_of = {entry.key: place for place, entry in enumerate(entries)}
        self._add_up(0)

    def _new(self, entry: Entry) -> DrawnEntry:
        return DrawnEntry(entry, self._look, is_unfolded=entry.key in self.unfolded)

    def fit(self, look: Look) -> None:
        """Forget what was drawn with another look."""
        if look != self._look:
            self._look = look
            self.drawn = [self._new(one.entry) for one in self.drawn]
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
        entry = self.drawn[place].entry
        self.unfolded ^= {entry.key}
        self.drawn[place] = self._new(entry)
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


def _round_runs(round_: Round, part: Part) -> Iterator[Run]:
    for token in round_.tokens_and_rejected(part):
        if isinstance(token, DraftToken):
            text = (token.text or "").translate(VISIBLE_WHITESPACE)
            yield Run(text, REJECTED, copied=False)
        elif token.origin is Origin.UNKNOWN:
            yield Run(token.text, TEXT)
        else:
            yield Run(token.text, NGRAM_KIND if token.drafter == NGRAM else token.origin.value)

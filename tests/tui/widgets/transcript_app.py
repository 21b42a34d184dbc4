"""A bare app around a transcript, and scripted rounds to feed it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from msgspec import structs
from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.color import Color
from textual.geometry import Region, Size
from textual.pilot import Pilot
from textual.strip import Strip
from textual.theme import Theme
from textual.widget import Widget
from textual.widgets import Static

from eaglechat.chat.recording import Recording, Terms
from eaglechat.paths import builtin_themes_dir
from eaglechat.settings.model import View
from eaglechat.tui.themes import TOKEN_KINDS, load_themes, token_variable_defaults
from eaglechat.tui.widgets.transcript.entries import MARGIN, DrawnEntry
from eaglechat.tui.widgets.transcript.transcript import PADDING, Transcript
from eaglechat.tui.widgets.transcript.wrapping import Row
from eaglechat.wire.records import DraftToken, Origin, ReplyEnd, Round, Token
from eaglechat.words.timeline import Entry, Kind
from tests.chat.records import answering, end_of, round_of
from tests.tui.textual_private import drawn_strips
from tests.waiting import until_async

THEMES = {theme.name: theme for theme in load_themes(builtin_themes_dir())[0]}


def token_looks(theme: Theme) -> dict[str, tuple[Color, set[str]]]:
    """The colour and the text styles of each kind of token."""
    given = theme.variables
    return {
        kind: (
            Color.parse(given[f"token-{kind}"]),
            {*given[f"token-{kind}-style"].split()} - {"none"},
        )
        for kind in TOKEN_KINDS
    }


class Shown:
    """An entry of a transcript, as it is seen."""

    def __init__(self, transcript: Transcript, key: str) -> None:
        self.transcript, self.key = transcript, key

    @property
    def place(self) -> int:
        return self.transcript.rows.place_of[self.key]

    @property
    def entry(self) -> Entry:
        return self.drawn.entry

    @property
    def drawn(self) -> DrawnEntry:
        return self.transcript.rows.drawn[self.place]

    @property
    def text(self) -> str:
        recording = self.entry.recording
        assert recording is not None
        return recording.reasoning if self.entry.kind == "thought" else recording.text

    @property
    def size(self) -> Size:
        """Without the rows and columns that are empty around it."""
        width = self.transcript.scrollable_size.width - 2 * PADDING
        return Size(width, self.drawn.height - MARGIN)

    @property
    def top(self) -> int:
        """The row of the view in which it begins."""
        return self.transcript.rows.tops[self.place] - self.transcript.first_row

    @property
    def region(self) -> Region:
        x, y = self.transcript.region.offset
        return Region(x + PADDING, y + self.top, *self.size)

    def render_line(self, y: int) -> Strip:
        strip = self.transcript.render_line(self.top + y)
        return strip.crop(PADDING, PADDING + self.size.width)

    def at(self, x: int, y: int) -> tuple[int, int]:
        """Where a cell of it is in the transcript."""
        return x + PADDING, y + self.top


def shown_in(transcript: Transcript, kind: str = "") -> list[Shown]:
    """The entries of a transcript, or those of a kind."""
    entries = [one.entry for one in transcript.rows.drawn]
    return [Shown(transcript, entry.key) for entry in entries if kind in ("", entry.kind)]


class TranscriptApp(App[None]):
    def __init__(self, view: View = "trace") -> None:
        super().__init__()
        self._view = view
        for theme in THEMES.values():
            self.register_theme(theme)
        self.theme = "eagle-dark"
        self.shown: list[Entry] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return token_variable_defaults(THEMES.values(), self.current_theme.dark)

    def compose(self) -> ComposeResult:
        transcript = Transcript()
        transcript.view = self._view
        yield transcript
        yield Static(id="legend")

    def on_mount(self) -> None:
        # It moves by its own keys, where the chat screen has commands.
        self.transcript.can_focus = True
        self.transcript.focus()

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    def add(self, kind: Kind, text: str) -> None:
        """Show one more entry: a question or a notice."""
        self._append(Entry(f"entry {len(self.shown)}", kind, text))

    def add_reply(self, text: str) -> None:
        """Show a reply that wrote this text in one round."""
        entry = Entry(f"entry {len(self.shown)}", "reply", recording=answering(text), note="")
        self._append(entry)

    def entries(self, kind: str = "") -> list[Shown]:
        return shown_in(self.transcript, kind)

    def begin_reply(self) -> Shown:
        """Show an empty reply, to be fed with rounds."""
        entry = Entry(f"entry {len(self.shown)}", "reply", recording=Recording(Terms()))
        self._append(entry)
        return self.entries()[-1]

    def write(self, reply: Shown, rounds: Iterable[Round]) -> None:
        """The engine wrote these rounds, and a frame is drawn."""
        entry = self.shown[reply.place]
        assert entry.recording is not None
        for round_ in rounds:
            entry.recording.add(round_)
        self.transcript.follow(entry)

    def end(self, reply: Shown, end: ReplyEnd | None, note: str = "") -> None:
        """The reply ended; this is said below it."""
        place = reply.place
        entry = self.shown[place]
        assert entry.recording is not None
        entry.recording.end = end
        self.shown[place] = replace(entry, note=note)
        self.transcript.show(self.shown)

    def _append(self, entry: Entry) -> None:
        self.shown.append(entry)
        self.transcript.show(self.shown)


def make_round(accepted: list[str], last: str, rejected: str | None = None) -> Round:
    """A round that accepted some tokens and ended with a correction (if one was rejected), a
    bonus, or a plain token (if nothing was drafted)."""
    if rejected is not None:
        origin = Origin.CORRECTION
    else:
        origin = Origin.BONUS if accepted else Origin.PLAIN
    draft = [*accepted, *([rejected, " never"] if rejected is not None else [])]
    return structs.replace(
        round_of(drafted=3),
        drafted=tuple(DraftToken(1, text, 0.5, place - 1) for place, text in enumerate(draft)),
        n_tested=len(accepted) + (rejected is not None),
        n_accepted=len(accepted),
        tokens=(*(Token(1, text, Origin.ACCEPTED) for text in accepted), Token(1, last, origin)),
    )


def random_rounds(seed: int, count: int) -> Iterator[Round]:
    rng = random.Random(seed)
    words = [
        "**",
        " `",
        "*a",
        "```",
        "# ",
        "- ",
        "> ",
        " the",
        " fox",
        "es",
        " ",
        "\n",
        "\t",
        " 漢字",
        "、",
        " extraordinarily",
        ".",
        "é",
    ]
    for _ in range(count):
        accepted = rng.choices(words, k=rng.randint(0, 3))
        rejected = rng.choice([None, *words])
        yield make_round(accepted, rng.choice(words), rejected)


def make_end(tail: str = "") -> ReplyEnd:
    return structs.replace(end_of(1, 1.0), tail=tail)


async def until(pilot: Pilot[None], holds: Callable[[], object]) -> None:
    """Let the app work until something holds."""
    await until_async(holds, "what was waited for", lambda: pilot.pause(0.01))


async def shown_reply(app: TranscriptApp, pilot: Pilot[None], *batches) -> Shown:
    """A reply that was given these batches of rounds, once it is laid out."""
    reply = app.begin_reply()
    for batch in batches:
        app.write(reply, batch)
    await until(pilot, lambda: reply.size.height)
    return reply


def text_of(row: Row) -> str:
    return "".join(piece.shown for piece in row)


def drawn_rows(widget: Widget | Shown) -> list[str]:
    return [widget.render_line(y).text.rstrip() for y in range(widget.size.height)]


def on_screen(widget: Widget | Shown) -> list[str]:
    """The rows of a widget as the terminal has them, caches of the screen included."""
    region = widget.region
    screen = widget.transcript.screen if isinstance(widget, Shown) else widget.screen
    rows = drawn_strips(screen)[max(0, region.y) : region.bottom]
    return [row.crop(region.x, region.right).text.rstrip() for row in rows]


def drawn_segments(widget: Widget | Shown) -> list[Segment]:
    rows = map(widget.render_line, range(widget.size.height))
    return [segment for row in rows for segment in row if segment.text]


def segment_of(widget: Widget | Shown, text: str) -> Segment:
    """The one drawn segment that contains a text."""
    [segment] = [segment for segment in drawn_segments(widget) if text in segment.text]
    return segment


ROUNDS = [
    make_round(["one", " two"], " three", rejected=" tree"),
    make_round([" four", " five"], " six"),
    make_round([], " seven"),
]


FLAGS = ("bold", "dim", "italic", "overline", "reverse", "strike", "underline")


def flags(style: Style | None) -> set[str]:
    assert style is not None
    return {flag for flag in FLAGS if getattr(style, flag)}

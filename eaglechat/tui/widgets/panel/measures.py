"""What is measured of a reply: in the panel one widget that draws all of it, and one line where the
panel has no room."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from textual import events
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from eaglechat.chat.measured import Stretch
from eaglechat.chat.session import ChatSession
from eaglechat.tui.commands.keys import short_key_of, with_keys
from eaglechat.tui.themes import MUTED
from eaglechat.wire.protocol import AUTO
from eaglechat.wire.records import Round
from eaglechat.wire.stats import SpeculationStats
from eaglechat.words import numbers, wording
from eaglechat.words.bars import bar, column, round_glyph
from eaglechat.words.headline import Headline
from eaglechat.words.statistics import of_whole_reply
from eaglechat.words.wording import percent

HEADING, VALUE = "bold $primary", "bold $foreground"
SAID, DRAFTED = "$text-warning", "$token-accepted"
VERDICTS = {"faster": "bold $text-success", "slower": "bold $text-warning"}
_LINE, _GAINED, _LOST, _BELOW = MUTED, "$text-success", "$text-warning", "$foreground 30%"
_GAUGE = f"{DRAFTED} on $foreground 12%"
_REJECTED, _MARK = "$token-rejected", "$token-correction"
_KEYS = "0123456789.x"
_LARGE = (
    "╭─╮╶╮ ╶─╮╶─╮╷ ╷┌─╴╭─╴╶─┐╭─╮╭─╮      ",
    "│ │ │ ┌─┘ ─┤╰─┤└─╮├─╮  │├─┤╰─┤      ",
    "╰─╯╶┴╴╰─╴╶─╯  ╵╶─╯╰─╯  ╵╰─╯╶─╯ .  x ",
)
"""Three cells of each of `_KEYS`, in three rows."""
_GAP = "   "
_MOST_ROUNDS = 512
"""The most rounds that are drawn."""
_MOST_IN_LINE, _LEAST_IN_LINE = 12, 4
"""The most rounds that one line shows, and the fewest that say something."""
_ROUNDS_PER_COLUMN = 4
"""At least: single rounds write 1 token or 5, which is no speed yet."""
_GAUGE_CELLS = 20
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_NUMBERS = re.compile(r"[\d.]+%?|[^\d.]+")
_WHY_ROWS, _STRIP_ROWS = 4, 2
_TOOLTIPS = {
    "speed": "Tokens per second of this reply against plain decoding, since the draft length was "
    "last set by hand, and the error (95%). Plain decoding is measured in a few rounds of the same "
    "reply that draft nothing. “At most here” is what a draft would give that costs nothing and is "
    "always right: this quantisation's passes over several tokens were timed when it was loaded.",
    "chart": "Tokens per second over this reply, oldest at the left. The line is plain decoding; "
    "the highest column is three times as fast, or more. It is grey where nothing was drafted, and "
    "until it is known whether drafting is faster.",
    "why": "One round, as the mean of those of this reply that drafted: the time to draft, the "
    "target's pass that checks the guesses, and the tokens that they give; below it, plain "
    "decoding. Then the share of the tested guesses that the target kept, and that of the first "
    "guess of a round, the second, and so on. All since the draft length was last set by hand.",
}
"""Explanations of the parts that have one."""
_Row = tuple[str, Content]
"""A row, and the part that it belongs to."""


class Measures(Static):
    """Shows whether drafting is faster and why, and the rounds."""

    def __init__(self, session: ChatSession) -> None:
        super().__init__(id="measures", classes="group")
        self._session = session
        self._parts: list[str] = []
        """The part that each row belongs to."""

    def show(self) -> None:
        rows, height = [*self._rows(self._session, self.content_size.width)], len(self._parts)
        self._parts = [part for part, _ in rows]
        drawn = Content("\n").join(row for _, row in rows)
        self.update(drawn, layout=height != len(rows))

    def on_resize(self) -> None:
        self.show()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        part = self._parts[event.y] if event.y < len(self._parts) else ""
        self.tooltip = _TOOLTIPS.get(part)

    def _rows(self, session: ChatSession, width: int) -> Iterator[_Row]:
        known, shown = numbers.headline(session), session.shown
        rounds = shown.rounds[-_MOST_ROUNDS:] if shown else ()
        empty = Content("")

        def gap() -> Iterator[_Row]:
            # Below the chat, the panel is low.
            if not self.screen.has_class("-panel-flat"):
                yield "", empty

        # That which wrote the reply, or will write the first one; eaglechat's own is not named.
        engine = (shown.terms if shown else session.terms).engine
        title = f"SPEED · {engine}" if engine else "SPEED"
        yield "", Content.styled(wording.fitting(title, width), HEADING)
        for row in speed_rows(known, width, is_begun=bool(rounds)):
            yield "speed", row
        yield from gap()
        for row in chart_rows(rounds, known, width):
            yield "chart", row
        said = _said(session, known)
        # What is said of drafting stands in the empty row above WHY, so that nothing moves.
        lines = Content.styled(said, SAID).wrap(width) if said and width else [empty]
        for row in lines:
            yield "", row
        if numbers.unreported(session) is not None:
            return
        yield "", Content.styled("WHY", HEADING)
        stretch = shown.stretch if shown else Stretch()
        stats = None if known.state == "plain" else stretch.stats
        why = why_rows(stretch.round_means, known.plain_per_second, stats, width)
        for row in [*why, *[empty] * (_WHY_ROWS - len(why))]:
            yield "why", row
        yield from gap()
        strip = strip_rows(rounds, width)
        for row in [*strip, *[empty] * (_STRIP_ROWS - len(strip))]:
            yield "", row


def _said(session: ChatSession, known: Headline) -> str:
    """What there is to say of drafting beside the numbers: that there is none, or only some; and
    what helps if it is slower."""
    if off := numbers.off(session):
        return "Off" if off == numbers.SWITCHED_OFF else f"Off: {off}."
    if unreported := numbers.unreported(session):
        if session.shown and session.shown.stats.is_of_whole_reply:
            unreported = f"this reply: {of_whole_reply(session.shown.stats)}; more is {unreported}"
        return wording.sentence(unreported)
    if known.verdict == "slower" and session.controls.n_draft_max != AUTO:
        return with_keys("{chat.auto} lets measurement choose the length")
    return "No draft model: n-grams only" if numbers.has_only_ngrams(session) else ""


def speed_rows(known: Headline, width: int, *, is_begun: bool) -> list[Content]:
    """The speed-up, large if it is a number and fits, and beside it the speeds that it is made of:
    three rows. `is_begun` says whether there is a reply."""
    times = known.times()
    said, own, plain = known.beside_times(), known.speed(), known.plain_speed()
    plain, most = f"plain {plain}" if plain else "", known.of_most()
    if times and most:
        own, plain = f"{own}, {plain.rpartition(' ')[0]}", most
    if not times or 3 * len(times) + len(_GAP) + max(len(said), len(plain)) > width:
        times = ""
        said = known.in_short() or ("too few rounds yet" if is_begun else "no reply yet")
    verdict = VERDICTS.get(known.verdict or "", VALUE)
    beside = (said, verdict), (own, VALUE), (plain, MUTED)
    places = [3 * _KEYS.index(one) for one in times]
    large = ("".join(row[place : place + 3] for place in places) for row in _LARGE)
    return [
        Content.assemble((f"{row}{_GAP}" if times else "", verdict), text)
        for row, text in zip(large, beside, strict=True)
    ]


def chart_rows(rounds: Sequence[Round], known: Headline, width: int) -> list[Content]:
    """Tokens per second over the reply in three rows, oldest at the left. The lowest row is full
    where the reply was as fast as plain decoding; what is above it was gained, and the line there
    is plain."""
    speeds, plain = speeds_over(rounds, width), known.plain_per_second
    is_judged = known.verdict not in (None, "unclear")
    if plain is None:
        most = max((one for one, _ in speeds), default=0.0) or 1.0
        rows = ("".join(column(one / most, row, 3) for one, _ in speeds) for row in range(3))
        return [Content.styled(row, _LINE) for row in rows]
    columns: list[tuple[Content, Content, Content]] = []
    for per_second, is_drafted in speeds:
        share, has_verdict = per_second / (plain or 1.0), is_drafted and is_judged
        gained = _GAINED if has_verdict else _LINE
        lost, same = (_LOST, _BELOW) if has_verdict else (_LINE, _LINE)
        # In rows of plain decoding.
        columns.append(
            (
                Content.styled(column((share - 1) / 2, 0, 2), gained),
                Content.styled(column((share - 1) / 2, 1, 2), _LINE if share <= 1 else gained),
                Content.styled(column(share, 0, 1), lost if share < 1 else same),
            )
        )
    top, middle, below = (Content("").join(one[row] for one in columns) for row in range(3))
    rest = "▁" * (width - len(speeds)) if speeds else ""
    return [top, middle + Content.styled(rest, _LINE), below]


def speeds_over(rounds: Sequence[Round], most: int) -> list[tuple[float, bool]]:
    """Tokens per second of equally many rounds each, in at most `most` steps, and whether one of
    them was drafted; a last step that is not full is left out."""
    each = max(_ROUNDS_PER_COLUMN, -(-len(rounds) // max(1, most)))
    speeds: list[tuple[float, bool]] = []
    for first in range(0, len(rounds) - each + 1, each):
        group = rounds[first : first + each]
        ms = sum(round_.timings.total_ms for round_ in group)
        tokens = sum(len(round_.tokens) for round_ in group)
        is_drafted = any(round_.drafted for round_ in group)
        speeds.append((1000.0 * tokens / ms if ms > 0 else 0.0, is_drafted))
    return speeds


def why_rows(
    means: tuple[float | None, float, float] | None,
    plain: float | None,
    stats: SpeculationStats | None,
    width: int,
) -> list[Content]:
    """At most four rows: a round that drafts, a plain one, the share of guesses kept, and that
    share by position. `means` are those of `Stretch.round_means`; `plain` is in tokens per second;
    `stats` is None if drafting is off."""
    rows: list[Content] = []
    if means is not None:
        draft_ms, check_ms, tokens = means
        draft = "draft" if draft_ms is None else f"draft {_ms(draft_ms)}"
        rows.append(_cost(f"{draft} + check {_ms(check_ms)} ms", f"{tokens:.1f}"))
    rows.append(_cost(f"plain {_ms(1000.0 / plain)} ms", "1") if plain else Content(""))
    if stats is None:
        return rows
    rate = stats.acceptance_rate
    if rate is None:
        return [*rows, _numbers("nothing drafted yet")]
    kept = _numbers(f"kept {percent(rate):>4} ")
    rows.append(kept + Content.styled(bar(rate, _GAUGE_CELLS), _GAUGE))
    by_place = ""
    for place, one in enumerate(stats.per_position, 1):
        longer = f"{by_place}{place}{_ENDINGS.get(place, 'th')} {percent(one)}"
        if len(longer) > width:
            break
        by_place = f"{longer}  "
    return [*rows, Content.styled(by_place, VALUE)]


def _cost(time: str, tokens: str) -> Content:
    return _numbers(f"{time:<25}= {tokens} tok")


def _numbers(line: str) -> Content:
    """A line whose numbers stand out."""
    parts = _NUMBERS.findall(line)
    return Content("").join(
        Content.styled(part, VALUE if part[0].isdigit() else MUTED) for part in parts
    )


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def strip_rows(rounds: Sequence[Round], width: int) -> list[Content]:
    """A cell per round, the newest at the right; beneath, where n_draft_max changed."""
    shown = rounds[-width:]
    if not shown:
        return [Content.styled("no round yet", MUTED)]
    cells = (Content.styled(round_glyph(one), _kept(one)) for one in shown)
    return [Content("").join(cells), Content.styled(change_marks(rounds, width), _MARK)]


def _kept(round_: Round) -> str:
    if not round_.drafted:
        return MUTED
    return DRAFTED if round_.n_accepted else _REJECTED


def change_marks(rounds: Sequence[Round], width: int) -> str:
    """The line below the strip, for its last `width` rounds. Where n_draft_max was changed it has
    an arrow and the new value, or the arrow alone if the next change leaves no space. What auto
    chooses from round to round is no change: the word auto marks where it was switched on."""
    first, line, start = max(0, len(rounds) - width), "", 0
    for index in range(max(first, 1), len(rounds)):
        if mark := _change_mark(rounds[index - 1], rounds[index]):
            place = index - first
            line = line if len(line) <= place else line[: start + 1]
            start, line = place, f"{line:<{place}}{mark}"
    return line if len(line) <= width else line[: start + 1]


def _change_mark(before: Round, now: Round) -> str:
    if now.auto is not None:
        return "auto" if before.auto is None else ""
    if before.auto is None and before.n_draft_max == now.n_draft_max:
        return ""
    return f"{'↑' if now.n_draft_max >= before.n_draft_max else '↓'}{now.n_draft_max}"


# On one line


class StatusLine(Widget):
    """The headline, tokens per second, the share of guesses kept, the draft length and its keys, as
    far as they have room, and in what is left of it the latest rounds."""

    def __init__(self, session: ChatSession) -> None:
        super().__init__(id="status")
        self._session = session

    def render(self) -> Content:
        session, line, width = self._session, Content(""), self.content_size.width
        for part in _parts(session):
            longer = Content(_GAP).join([line, part]) if line else part
            if line and longer.cell_length > width:
                break
            line = longer
        room = min(width - line.cell_length - len(_GAP), _MOST_IN_LINE)
        rounds = session.shown.rounds if session.shown else ()
        drafts = not (numbers.off(session) or numbers.unreported(session))
        if drafts and rounds and room >= _LEAST_IN_LINE:
            strip = "".join(map(round_glyph, rounds[-room:]))
            line = Content.assemble(line, _GAP, (strip, DRAFTED))
        return line


def _parts(session: ChatSession) -> Iterator[Content]:
    known, shown = numbers.headline(session), session.shown
    off, unreported = numbers.off(session), numbers.unreported(session)
    if off:
        yield Content.styled("speculation off", VALUE)
    elif not unreported and (said := known.in_short()):
        yield Content.styled(said, VERDICTS.get(known.verdict or "", VALUE))
    if speed := known.speed():
        rate, unit = speed.split(" ")
        yield Content.assemble((rate, VALUE), f" {unit}")
    if off:
        yield Content(off)
    elif unreported and shown and shown.stats.is_of_whole_reply:
        yield Content.styled(of_whole_reply(shown.stats), VALUE)
    elif unreported:
        yield Content(f"speculation {unreported}")
    elif shown and (kept := shown.stretch.stats.acceptance_rate) is not None:
        yield Content.assemble("kept ", (percent(kept), VALUE))
    if session.can.draft_length:
        length = str(session.controls.n_draft_max)
        if length == AUTO and (auto := numbers.auto(session)):
            chosen = f"{auto.n} tree" if auto.shape == "tree" else str(auto.n)
            length = f"{AUTO} {chosen if auto.n else 'plain'}"
        yield Content.assemble("length ", (length, VALUE))
        yield Content(f"{short_key_of('chat.less')}- {short_key_of('chat.more')}+")

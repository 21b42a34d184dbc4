"""What the panel draws of its numbers, in rows: speed, its chart, why it is so, the rounds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from textual.content import Content

from eaglechat.chat.headline import Headline
from eaglechat.tui.widgets.readouts import MUTED
from eaglechat.wire.records import Round
from eaglechat.wire.stats import SpeculationStats
from eaglechat.wire.stretch import RoundMeans
from eaglechat.words import headline as words
from eaglechat.words.bars import bar, column, round_glyph
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
_ROUNDS_PER_COLUMN = 4
"""At least: single rounds write 1 token or 5, which is no speed yet."""
_GAUGE_CELLS = 20
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_NUMBERS = re.compile(r"[\d.]+%?|[^\d.]+")


def speed(known: Headline, width: int, *, is_begun: bool) -> list[Content]:
    """The speed-up, large if it is a number and fits, and beside it the speeds that it is made of:
    three rows. `is_begun` says whether there is a reply."""
    times = words.times(known)
    said, own, plain = words.beside_times(known), words.speed(known), words.plain_speed(known)
    plain, most = f"plain {plain}" if plain else "", words.of_most(known)
    if times and most:
        own, plain = f"{own}, {plain.rpartition(' ')[0]}", most
    if not times or 3 * len(times) + len(_GAP) + max(len(said), len(plain)) > width:
        times = ""
        said = words.in_short(known) or ("too few rounds yet" if is_begun else "no reply yet")
    verdict = VERDICTS.get(known.verdict or "", VALUE)
    beside = (said, verdict), (own, VALUE), (plain, MUTED)
    return [
        Content.assemble((f"{_in_large(times, row)}{_GAP}" if times else "", verdict), text)
        for row, text in zip(_LARGE, beside, strict=True)
    ]


def _in_large(text: str, row: str) -> str:
    return "".join(row[3 * _KEYS.index(one) : 3 * _KEYS.index(one) + 3] for one in text)


def chart(rounds: Sequence[Round], known: Headline, width: int) -> list[Content]:
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


def why(
    means: RoundMeans | None,
    plain: float | None,
    stats: SpeculationStats | None,
    width: int,
) -> list[Content]:
    """At most four rows: a round that drafts, a plain one, the share of guesses kept, and that
    share by position. `plain` is in tokens per second; `stats` is None if drafting is off."""
    rows: list[Content] = []
    if means is not None:
        draft = "draft " if means.draft_ms is None else f"draft {_ms(means.draft_ms)} "
        check = _ms(means.ms) if means.draft_ms is None else _ms(means.check_ms)
        head = f"{draft}+ check {check} ms"
        rows.append(_numbers(f"{head:<25}= {means.tokens:.1f} tok"))
    if plain:
        head = f"plain {_ms(1000.0 / plain)} ms"
        rows.append(_numbers(f"{head:<25}= 1 tok"))
    else:
        rows.append(Content(""))
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


def _numbers(line: str) -> Content:
    """A line whose numbers stand out."""
    parts = _NUMBERS.findall(line)
    return Content("").join(
        Content.styled(part, VALUE if part[0].isdigit() else MUTED) for part in parts
    )


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def strip(rounds: Sequence[Round], width: int) -> list[Content]:
    """A cell per round, the newest at the right; beneath, where n_draft_max changed."""
    shown = rounds[-width:]
    if not shown:
        return [Content.styled("no round yet", MUTED)]
    cells = (Content.styled(round_glyph(one), _kept(one)) for one in shown)
    return [
        Content("").join(cells),
        Content.styled(change_marks(rounds, width), _MARK),
    ]


def _kept(round_: Round) -> str:
    if not round_.drafted:
        return MUTED
    return DRAFTED if round_.n_accepted else _REJECTED


def change_marks(rounds: Sequence[Round], width: int) -> str:
    """The line below the strip, for its last `width` rounds. Where n_draft_max was changed it has
    an arrow and the new value, or the arrow alone if the next change leaves no space. What auto
    chooses from round to round is no change: the word auto marks where it was switched on."""
    first = max(0, len(rounds) - width)
    changes = [
        (index - first, mark)
        for index in range(max(first, 1), len(rounds))
        if (mark := _change_mark(rounds[index - 1], rounds[index]))
    ]
    line = [" "] * width
    ends = [start for start, _mark in changes[1:]] + [width]
    for (start, mark), end in zip(changes, ends, strict=False):
        shown = mark if start + len(mark) <= end else mark[0]
        line[start : start + len(shown)] = shown
    return "".join(line).rstrip()


def _change_mark(before: Round, now: Round) -> str:
    if now.auto is not None:
        return "auto" if before.auto is None else ""
    if before.auto is None and before.n_draft_max == now.n_draft_max:
        return ""
    return f"{'↑' if now.n_draft_max >= before.n_draft_max else '↓'}{now.n_draft_max}"

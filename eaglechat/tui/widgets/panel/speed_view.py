"""The headline, large, and the reply's tokens per second as they went."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from eaglechat.chat.headline import Headline
from eaglechat.wire.records import Round
from eaglechat.words import headline as words
from eaglechat.words.bars import column

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
_CHART_ROWS = 3


class SpeedView(Widget):
    """The speed-up in three rows, and beside it the speeds that it is made of."""

    COMPONENT_CLASSES = {
        "speed--faster", "speed--same", "speed--slower", "speed--value", "speed--label",
    }  # fmt: skip

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._headline = Headline()
        self._is_begun = False
        self.tooltip = (
            "Tokens per second of this reply against plain decoding, since the draft length was "
            "last set by hand, and the error (95%). Plain decoding is measured in a few rounds of "
            "the same reply that draft nothing."
        )

    def show(self, headline: Headline, *, is_begun: bool) -> None:
        """`is_begun` says whether there is a reply."""
        if (self._headline, self._is_begun) != (headline, is_begun):
            self._headline, self._is_begun = headline, is_begun
            self.refresh()

    def render(self) -> Content:
        known = self._headline
        value, label = self._style("value"), self._style("label")
        times = words.times(known)
        said, plain = words.beside_times(known), words.plain_speed(known)
        plain = f"plain {plain}" if plain else ""
        large = 3 * len(times) + len(_GAP)
        if not times or large + max(len(said), len(plain)) > self.content_size.width:
            times = ""
            said = words.in_short(known) or (
                "too few rounds yet" if self._is_begun else "no reply yet"
            )
        verdict = known.verdict if known.verdict in ("faster", "slower") else "same"
        beside = (
            (said, self._style(verdict)),
            (words.speed(known), value),
            (plain, label),
        )
        rows = [
            Content.assemble((large + _GAP if times else "", self._style(verdict)), text)
            for large, text in zip(_in_large(times), beside, strict=True)
        ]  # fmt: skip
        return Content("\n").join(rows)

    def _style(self, name: str) -> Style:
        return self.get_visual_style(f"speed--{name}")


def _in_large(text: str) -> tuple[str, str, str]:
    first, second, third = (
        "".join(row[3 * _KEYS.index(one) : 3 * _KEYS.index(one) + 3] for one in text)
        for row in _LARGE
    )
    return first, second, third


class SpeedChart(Widget):
    """Tokens per second over the reply, oldest at the left. The lowest row is full where the reply
    was as fast as plain decoding; what is above it was gained, and the line there is plain."""

    COMPONENT_CLASSES = {"speed--faster", "speed--slower", "speed--line", "speed--below"}

    def __init__(self, *, id: str | None = None, tooltip: str = "") -> None:
        super().__init__(id=id)
        self.tooltip = tooltip
        self._rounds: Sequence[Round] = ()
        self._plain: float | None = None
        self._is_judged = False

    def show(self, rounds: Sequence[Round], headline: Headline) -> None:
        plain, is_judged = headline.plain_per_second, headline.verdict not in (None, "unclear")
        before = (len(self._rounds), self._rounds[-1:], self._plain, self._is_judged)
        if before != (len(rounds), rounds[-1:], plain, is_judged):
            self._rounds, self._plain, self._is_judged = rounds, plain, is_judged
            self.refresh()

    def render(self) -> Content:
        width = self.content_size.width
        speeds = speeds_over(self._rounds, width)
        if not speeds:
            return Content("")
        names = ("line", "slower", "faster", "below")
        line, slower, faster, under = (self.get_visual_style(f"speed--{one}") for one in names)
        if self._plain is None:
            most = max(one for one, _ in speeds) or 1.0
            rows = ["".join(column(one / most, row, _CHART_ROWS) for one, _ in speeds)
                    for row in range(_CHART_ROWS)]  # fmt: skip
            return Content("\n").join([Content.styled(row, line) for row in rows])

        def rows_of(speed: float, *, is_drafted: bool) -> tuple[Content, Content, Content]:
            share = speed / (self._plain or 1.0)
            gained, lost, same = (
                (faster, slower, under) if is_drafted and self._is_judged else (line, line, line)
            )
            return (
                Content.styled(column((share - 1) / 2, 0, 2), gained),
                Content.styled(column((share - 1) / 2, 1, 2), line if share <= 1 else gained),
                Content.styled(column(share, 0, 1), lost if share < 1 else same),
            )

        # In rows of plain decoding.
        columns = [rows_of(speed, is_drafted=is_drafted) for speed, is_drafted in speeds]
        top, middle, below = (Content("").join(row) for row in zip(*columns, strict=True))
        rest = Content.styled("▁" * (width - len(speeds)), line)
        return Content("\n").join([top, middle + rest, below])


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

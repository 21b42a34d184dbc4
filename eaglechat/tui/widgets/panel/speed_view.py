"""The headline, large, and the reply's tokens per second as they went."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from eaglechat.chat.headline import Headline
from eaglechat.tui.texts import headline as words
from eaglechat.tui.texts.bars import column
from eaglechat.wire.records import Round

_KEYS = "0123456789.x~"
_LARGE = (
    "╭─╮╶╮ ╶─╮╶─╮╷ ╷┌─╴╭─╴╶─┐╭─╮╭─╮         ",
    "│ │ │ ┌─┘ ─┤╰─┤└─╮├─╮  │├─┤╰─┤       ~ ",
    "╰─╯╶┴╴╰─╴╶─╯  ╵╶─╯╰─╯  ╵╰─╯╶─╯ .  x    ",
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

    def show(self, headline: Headline, *, is_begun: bool) -> None:
        """`is_begun` says whether there is a reply."""
        if (self._headline, self._is_begun) != (headline, is_begun):
            self._headline, self._is_begun = headline, is_begun
            self.tooltip = _explanation(headline)
            self.refresh()

    def render(self) -> Content:
        known = self._headline
        value, label = self._style("value"), self._style("label")
        times = words.times(known)
        slower = ", slower" if known.verdict == "slower" else ""
        said = f"plain ±{known.error:.1f}{slower}"
        plain = words.plain_in_short(known.plain) if known.plain else ""
        large = 3 * len(times) + len(_GAP)
        if not times or large + max(len(said), len(plain)) > self.content_size.width:
            times = ""
            said = words.in_short(known) or (
                "too few rounds yet" if self._is_begun else "no reply yet"
            )
        beside = (
            (said, self._style(known.verdict or "same")),
            (words.speed(known), value),
            (plain, label),
        )
        rows = [
            Content.assemble((large + _GAP if times else "", self._style(known.verdict or "same")),
                             text)
            for large, text in zip(_in_large(times), beside, strict=True)
        ]  # fmt: skip
        return Content("\n").join(rows)

    def _style(self, name: str) -> Style:
        return self.get_visual_style(f"speed--{name}")


def _explanation(headline: Headline) -> str:
    said = (
        "Tokens per second against plain decoding, ± two standard errors of both. During a reply, "
        "of its latest 64 rounds, or since the draft length was turned; then of all of it. "
    )
    return said if headline.is_plain else f"{said}Plain decoding: {words.origin(headline.plain)}."


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

    def show(self, rounds: Sequence[Round], headline: Headline) -> None:
        plain = headline.level.speed.tokens_per_second if headline.level else None
        if (len(self._rounds), self._rounds[-1:], self._plain) != (len(rounds), rounds[-1:], plain):
            self._rounds, self._plain = rounds, plain
            self.refresh()

    def render(self) -> Content:
        width = self.content_size.width
        speeds = speeds_over(self._rounds, width)
        if not speeds:
            return Content("")
        line, slower = (self.get_visual_style(f"speed--{name}") for name in ("line", "slower"))
        faster = self.get_visual_style("speed--faster")
        if self._plain is None:
            most = max(speeds)
            rows = ["".join(column(one / most, row, _CHART_ROWS) for one in speeds)
                    for row in range(_CHART_ROWS)]  # fmt: skip
            return Content("\n").join([Content.styled(row, line) for row in rows])
        # In rows of plain decoding.
        shares = [one / self._plain for one in speeds]
        top = "".join(column((one - 1) / 2, 0, 2) for one in shares)
        middle = Content("").join(
            Content.styled(column((one - 1) / 2, 1, 2), line if one <= 1 else faster)
            for one in shares
        )
        under = self.get_visual_style("speed--below")
        below = Content("").join(
            Content.styled(column(one, 0, 1), slower if one < 1 else under) for one in shares
        )
        rest = Content.styled("▁" * (width - len(speeds)), line)
        return Content("\n").join([Content.styled(top, faster), middle + rest, below])


def speeds_over(rounds: Sequence[Round], most: int) -> list[float]:
    """Tokens per second of equally many rounds each, in at most `most` steps; a last step that is
    not full is left out."""
    each = max(_ROUNDS_PER_COLUMN, -(-len(rounds) // max(1, most)))
    speeds = []
    for first in range(0, len(rounds) - each + 1, each):
        group = rounds[first : first + each]
        ms = sum(round_.timings.total_ms for round_ in group)
        tokens = sum(len(round_.tokens) for round_ in group)
        speeds.append(1000.0 * tokens / ms if ms > 0 else 0.0)
    return speeds

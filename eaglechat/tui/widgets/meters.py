"""Small meters drawn in text: a bar, columns per draft position, a strip with a cell per round."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from eaglechat.engine.records import Round
from eaglechat.engine.stats import SpeculationStats

_EIGHTHS_WIDE = " ▏▎▍▌▋▊▉█"
_EIGHTHS_HIGH = " ▁▂▃▄▅▆▇█"
PLAIN_ROUND = "·"


def bar(share: float, width: int) -> str:
    """A bar of `width` cells filled to `share`, in eighths of a cell."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS_WIDE[rest] if rest else "")).ljust(width)


def round_glyph(round_: Round) -> str:
    """One cell: how much of the round's draft was accepted, or a dot where nothing was drafted."""
    if not round_.drafted:
        return PLAIN_ROUND
    return _EIGHTHS_HIGH[1 + round(7 * round_.n_accepted / len(round_.drafted))]


class Bar(Widget):
    """A share of a whole as one line."""

    COMPONENT_CLASSES = {"bar--filled"}

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._share = 0.0

    def show(self, share: float | None) -> None:
        if self._share != (share or 0.0):
            self._share = share or 0.0
            self.refresh()

    def render(self) -> Content:
        return Content.styled(
            bar(self._share, self.content_size.width), self.get_visual_style("bar--filled")
        )


class PositionChart(Widget):
    """A column for each draft position: how often the target accepted the token drafted there."""

    COMPONENT_CLASSES = {"chart--column", "chart--value", "chart--label"}

    BAR_ROWS = 3

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._stats = SpeculationStats()

    def show(self, stats: SpeculationStats) -> None:
        if self._stats != stats:
            self._stats = stats
            self.refresh()

    def render(self) -> Content:
        rates = self._stats.per_position
        if not rates:
            return Content.styled("nothing drafted yet", self.get_visual_style("chart--label"))
        # Up to 9 positions each value has room for "100%"; beyond, the columns stand alone.
        column = 4 if len(rates) * 4 <= self.content_size.width else 2
        lines = [
            Content.styled(self._row(rates, row, column), self.get_visual_style("chart--column"))
            for row in range(self.BAR_ROWS)
        ]
        if column == 4:
            values = "".join(f"{rate:.0%}".rjust(3) + " " for rate in rates)
            lines.append(Content.styled(values, self.get_visual_style("chart--value")))
        labels = _position_labels(len(rates), column)
        lines.append(Content.styled(labels, self.get_visual_style("chart--label")))
        return Content("\n").join(lines)

    def _row(self, rates: Sequence[float], row: int, column: int) -> str:
        below = (self.BAR_ROWS - 1 - row) * 8
        cells = ""
        for rate in rates:
            eighths = min(max(round(rate * self.BAR_ROWS * 8) - below, 0), 8)
            if below == 0:
                eighths = max(eighths, 1)
            cells += (_EIGHTHS_HIGH[eighths] * (column - 2 or 1)).rjust(column - 1) + " "
        return cells


def _position_labels(count: int, column: int) -> str:
    """1, 2, 3 ... under their columns; under narrow columns only 1 and every fifth."""
    line = [" "] * (count * column + 1)
    for position in range(1, count + 1):
        if column == 4 or position == 1 or position % 5 == 0:
            label = str(position)
            end = position * column - 1
            line[end - 1 : end - 1 + len(label)] = label
    return "".join(line).rstrip()


class RoundStrip(Widget):
    """One cell per round, the newest at the right; beneath, where n_draft_max changed."""

    COMPONENT_CLASSES = {"strip--all", "strip--some", "strip--none", "strip--plain", "strip--mark"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rounds: tuple[Round, ...] = ()

    def show(self, rounds: tuple[Round, ...]) -> None:
        if self._rounds != rounds:
            self._rounds = rounds
            self.refresh()

    def render(self) -> Content:
        width = self.content_size.width
        shown = self._rounds[-width:]
        if not shown:
            return Content.styled("no round yet", self.get_visual_style("strip--plain"))
        cells = Content("").join(
            Content.styled(round_glyph(round_), self._style(round_)) for round_ in shown
        )
        marks = change_marks(self._rounds, width)
        return Content("\n").join(
            [cells, Content.styled(marks, self.get_visual_style("strip--mark"))]
        )

    def _style(self, round_: Round) -> Style:
        if not round_.drafted:
            name = "plain"
        elif round_.n_accepted == len(round_.drafted):
            name = "all"
        else:
            name = "some" if round_.n_accepted else "none"
        return self.get_visual_style(f"strip--{name}")


def change_marks(rounds: Sequence[Round], width: int) -> str:
    """A line with an arrow and the new n_draft_max under each of the last `width` rounds that
    was the first with it; the arrow alone where the next change is too close for the number."""
    first = max(0, len(rounds) - width)
    changes = [
        (index - first, rounds[index - 1].n_draft_max, rounds[index].n_draft_max)
        for index in range(max(first, 1), len(rounds))
        if rounds[index].n_draft_max != rounds[index - 1].n_draft_max
    ]
    line = [" "] * width
    ends = [column for column, _before, _now in changes[1:]] + [width]
    for (column, before, now), end in zip(changes, ends, strict=False):
        mark = f"{'↑' if now > before else '↓'}{now}"
        mark = mark if column + len(mark) <= end else mark[0]
        line[column : column + len(mark)] = mark
    return "".join(line).rstrip()

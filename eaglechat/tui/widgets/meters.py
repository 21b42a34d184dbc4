"""Small meters: a bar, a column for each draft position, a strip with a cell for each round."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from eaglechat.tui.texts.bars import bar, column, round_glyph
from eaglechat.wire.records import Round
from eaglechat.wire.stats import ROLLING_ROUNDS, SpeculationStats


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
            is_new = self._stats.rounds < ROLLING_ROUNDS
            said = (
                "nothing drafted yet" if is_new else f"no draft in the last {ROLLING_ROUNDS} rounds"
            )
            return Content.styled(said, self.get_visual_style("chart--label"))
        # Up to 9 positions each value has room for "100%"; beyond, the columns stand alone.
        cells = 4 if len(rates) * 4 <= self.content_size.width else 2
        lines = [
            Content.styled(self._row(rates, row, cells), self.get_visual_style("chart--column"))
            for row in range(self.BAR_ROWS)
        ]
        if cells == 4:
            values = "".join(f"{rate:.0%}".rjust(3) + " " for rate in rates)
            lines.append(Content.styled(values, self.get_visual_style("chart--value")))
        labels = _position_labels(len(rates), cells)
        lines.append(Content.styled(labels, self.get_visual_style("chart--label")))
        return Content("\n").join(lines)

    def _row(self, rates: Sequence[float], row: int, cells: int) -> str:
        drawn = (column(rate, row, self.BAR_ROWS) for rate in rates)
        return "".join((cell * (cells - 2 or 1)).rjust(cells - 1) + " " for cell in drawn)


def _position_labels(count: int, cells: int) -> str:
    """1, 2, 3 ... under their columns; under narrow columns only 1 and every fifth."""
    line = [" "] * (count * cells + 1)
    for position in range(1, count + 1):
        if cells == 4 or position == 1 or position % 5 == 0:
            label = str(position)
            end = position * cells - 1
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
        elif round_.n_accepted == round_.depth:
            name = "all"
        else:
            name = "some" if round_.n_accepted else "none"
        return self.get_visual_style(f"strip--{name}")


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

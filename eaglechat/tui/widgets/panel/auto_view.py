"""The automatic draft length at work: what it chose and why, what it expects of every length, and
what plain decoding would have been."""

from __future__ import annotations

from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from eaglechat.tui.texts import wording
from eaglechat.tui.texts.bars import bar, column
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, AutoDraft

_CHART_ROWS = 3
_LABELLED = (0, 4, 8, 12, 16)
_CHOSEN = "▲"
_TABLE_ROWS = N_DRAFT_MAX_LIMIT // 2 + 1
_TABLE_GAP = 2
_TABLE_TEXT = 13
"""Cells of a cell of the table without its bar: `>plain  173.2 `."""

TABLE_LINES = _TABLE_ROWS + 3


class AutoView(Widget):
    """As a table of all lengths where it has the lines for it, else as columns side by side."""

    COMPONENT_CLASSES = {"auto--chosen", "auto--other", "auto--label"}

    def __init__(self, *, id: str | None = None, tooltip: str = "") -> None:
        super().__init__(id=id)
        self.tooltip = tooltip
        self._auto: AutoDraft | None = None

    def show(self, auto: AutoDraft | None) -> None:
        if self._auto != auto:
            self._auto = auto
            self.refresh()

    def render(self) -> Content:
        auto, width = self._auto, self.content_size.width
        if auto is None or not auto.tokens_per_second:
            return Content.styled(
                wording.fitting(_WAITING, width), self.get_visual_style("auto--label")
            )
        is_table = self.content_size.height >= TABLE_LINES
        return Content("\n").join(
            [
                Content.styled(wording.auto_choice(auto, width), self._style("chosen")),
                *(self._table(auto, width) if is_table else self._chart(auto, width)),
                Content(wording.auto_speeds(auto, width)),
                Content.styled(wording.auto_ledger(auto, width), self._style("label")),
            ]
        )

    def _style(self, name: str) -> Style:
        return self.get_visual_style(f"auto--{name}")

    def _table(self, auto: AutoDraft, width: int) -> list[Content]:
        bar_cells = max(0, (width - _TABLE_GAP) // 2 - _TABLE_TEXT)
        most = max(auto.tokens_per_second)
        cells = [
            Content.styled(
                f"{'>' if n == auto.length else ' '}{'plain' if n == 0 else n:>5}{rate:>6.1f} "
                f"{bar(rate / most, bar_cells)}",
                self._style("chosen" if n == auto.length else "other"),
            )
            for n, rate in enumerate(auto.tokens_per_second)
        ]
        cells += [Content("")] * (2 * _TABLE_ROWS - len(cells))
        gap = " " * _TABLE_GAP
        return [
            Content.assemble(left, gap, right)
            for left, right in zip(cells[:_TABLE_ROWS], cells[_TABLE_ROWS:], strict=True)
        ]

    def _chart(self, auto: AutoDraft, width: int) -> list[Content]:
        rates = auto.tokens_per_second
        cells = 2 if len(rates) * 2 <= width else 1
        most = max(rates)
        lines = []
        for row in range(_CHART_ROWS):
            drawn = (column(rate / most, row, _CHART_ROWS).ljust(cells) for rate in rates)
            lines.append(
                Content.assemble(
                    *(
                        (cell, self._style("chosen" if n == auto.length else "other"))
                        for n, cell in enumerate(drawn)
                    )
                )
            )
        labels = _labels(len(rates), auto.length, cells)
        return [*lines, Content.styled(labels, self._style("label"))]


_WAITING = "Auto: measuring plain decoding first"


def _labels(count: int, chosen: int | None, cells: int) -> str:
    """Under the columns: the chosen length behind its mark, then whichever others have room."""
    line = [" "] * (count * cells + 3)
    if chosen is not None:
        _write(line, chosen * cells, f"{_CHOSEN}{chosen}")
    for n in _LABELLED:
        label, start = str(n), n * cells
        around = line[max(0, start - 1) : start + len(label) + 1]
        if n < count and "".join(around).isspace():
            _write(line, start, label)
    return "".join(line).rstrip()


def _write(line: list[str], start: int, text: str) -> None:
    line[start : start + len(text)] = text

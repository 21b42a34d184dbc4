"""Tokens per second that the automatic draft length expects of every length."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from eaglechat.tui.texts import wording
from eaglechat.tui.texts.bars import bar
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, AutoDraft

_ROWS = N_DRAFT_MAX_LIMIT // 2 + 1
_GAP = 2
_TEXT = 13
"""Cells of a cell of the table without its bar: `>plain  173.2 `."""
_WAITING = "Auto: measuring plain decoding first"


class LengthTable(Widget):
    """Its choice and why, then the lengths of the draft in two columns."""

    COMPONENT_CLASSES = {"lengths--chosen", "lengths--other"}

    def __init__(self, *, id: str, tooltip: str) -> None:
        super().__init__(id=id)
        self.tooltip = tooltip
        self._auto: AutoDraft | None = None
        self._drafter = ""

    def show(self, auto: AutoDraft | None, drafter: str) -> None:
        """`drafter` is the name of the one that drafts."""
        if (self._auto, self._drafter) != (auto, drafter):
            self._auto, self._drafter = auto, drafter
            self.refresh()

    def render(self) -> Content:
        auto, width = self._auto, self.content_size.width
        chosen, other = (self.get_visual_style(f"lengths--{one}") for one in ("chosen", "other"))
        if auto is None or not auto.tokens_per_second:
            return Content.styled(wording.fitting(_WAITING, width), other)
        choice = wording.fitting(f"Auto: {wording.auto_choice(auto)}", width)
        bar_cells = max(0, (width - _GAP) // 2 - _TEXT)
        most = max(auto.tokens_per_second)
        cells = [
            Content.styled(
                f"{'>' if n == auto.length else ' '}{'plain' if n == 0 else n:>5}{rate:>6.1f} "
                f"{bar(rate / most, bar_cells)}",
                chosen if n == auto.length else other,
            )
            for n, rate in enumerate(auto.tokens_per_second)
        ]
        cells += [Content("")] * (2 * _ROWS - len(cells))
        table = [
            Content.assemble(left, " " * _GAP, right)
            for left, right in zip(cells[:_ROWS], cells[_ROWS:], strict=True)
        ]
        heading = wording.fitting(f"{self._drafter or 'The draft'}, expected tok/s", width)
        lines = [Content.styled(choice, chosen), Content.styled(heading, other), *table]
        return Content("\n").join(lines)

"""Reasoning and answer side by side: how well each was drafted, and how fast it was written."""

from __future__ import annotations

from collections.abc import Mapping

from textual.content import Content
from textual.widget import Widget

from eaglechat.tui.texts import wording
from eaglechat.wire.records import Part
from eaglechat.wire.stats import PartStats

_NAME_CELLS = 11
_HEADINGS = ("accepted", "length", "tok/s")
_CELLS = 9


class PartsView(Widget):
    """A line for each part that the reply has."""

    COMPONENT_CLASSES = {"parts--label", "parts--value"}

    def __init__(self, *, id: str | None = None, tooltip: str = "") -> None:
        super().__init__(id=id)
        self.tooltip = tooltip
        self._parts: Mapping[Part, PartStats] = {}

    def show(self, parts: Mapping[Part, PartStats]) -> None:
        if parts != self._parts:
            is_as_high = len(parts) == len(self._parts)
            self._parts = parts
            self.refresh(layout=not is_as_high)

    def render(self) -> Content:
        label, value = self.get_visual_style("parts--label"), self.get_visual_style("parts--value")
        lines = [Content.styled(_line("", *_HEADINGS), label)]
        for part, stats in self._parts.items():
            numbers = _line(
                "",
                wording.percent(stats.stats.acceptance_rate),
                wording.two_decimals(stats.stats.mean_accepted_length),
                wording.one_decimal(stats.tokens_per_second),
            )
            name = part.value.capitalize().ljust(_NAME_CELLS)
            lines.append(Content.assemble((name, label), (numbers[_NAME_CELLS:], value)))
        return Content("\n").join(lines)


def _line(name: str, *cells: str) -> str:
    return name.ljust(_NAME_CELLS) + "".join(cell.rjust(_CELLS) for cell in cells)

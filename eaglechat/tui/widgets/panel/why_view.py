"""Why drafting is faster or slower: the arithmetic of one round, and how many guesses are kept."""

from __future__ import annotations

from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from eaglechat.wire.stats import SpeculationStats
from eaglechat.wire.stretch import RoundMeans
from eaglechat.words.bars import bar
from eaglechat.words.wording import percent

_GAUGE = 20
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_Part = str | tuple[str, Style]


class WhyView(Widget):
    """Four lines: a round that drafts, a plain one, the share of guesses kept, and that share by
    position."""

    COMPONENT_CLASSES = {"why--value", "why--label", "why--gauge"}

    def __init__(self, *, id: str | None = None, tooltip: str = "") -> None:
        super().__init__(id=id)
        self.tooltip = tooltip
        self._shown: tuple[RoundMeans | None, float | None, SpeculationStats | None] | None = None

    def show(
        self, means: RoundMeans | None, plain: float | None, stats: SpeculationStats | None
    ) -> None:
        """`plain` is in tokens per second; `stats` is None if drafting is off."""
        if self._shown != (means, plain, stats):
            self._shown = (means, plain, stats)
            self.refresh()

    def render(self) -> Content:
        if self._shown is None:
            return Content("")
        means, plain, stats = self._shown
        lines = [_plain_round(plain), *(self._kept(stats) if stats else ())]
        if means is not None:
            lines.insert(0, _drafted_round(means))
        value, label = (self.get_visual_style(f"why--{name}") for name in ("value", "label"))
        return Content("\n").join(
            Content.assemble(
                *((part, value if _is_value(part) else label) if isinstance(part, str) else part
                  for part in line)
            )
            for line in lines
        )  # fmt: skip

    def _kept(self, stats: SpeculationStats) -> list[list[_Part]]:
        rate = stats.acceptance_rate
        if rate is None:
            return [["nothing drafted yet"]]
        gauge = (bar(rate, _GAUGE), self.get_visual_style("why--gauge"))
        by_place: list[str] = []
        for place, one in enumerate(stats.per_position, 1):
            words = [f"{place}{_ENDINGS.get(place, 'th')} ", percent(one), "  "]
            if len("".join([*by_place, *words]).rstrip()) > self.content_size.width:
                break
            by_place += words
        return [["kept ", percent(rate).rjust(4), " ", gauge], [*by_place]]


def _drafted_round(means: RoundMeans) -> list[_Part]:
    draft = "draft " if means.draft_ms is None else f"draft {_ms(means.draft_ms)} "
    head = f"{draft}+ check {_ms(means.ms) if means.draft_ms is None else _ms(means.check_ms)} ms"
    return [*_split(f"{head:<25}= {means.tokens:.1f} tok")]


def _plain_round(plain: float | None) -> list[_Part]:
    if not plain:
        return []
    head = f"plain {_ms(1000.0 / plain)} ms"
    return [*_split(f"{head:<25}= 1 tok")]


def _split(line: str) -> list[str]:
    """Words and numbers apart, so that numbers stand out."""
    parts: list[str] = []
    for char in line:
        is_value = char.isdigit() or char == "."
        if parts and _is_value(parts[-1]) is is_value:
            parts[-1] += char
        else:
            parts.append(char)
    return parts


def _is_value(part: str) -> bool:
    return part.strip()[:1].isdigit()


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"

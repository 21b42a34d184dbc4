"""Small meters: a bar, and a strip with a cell for each round."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from eaglechat.wire.records import Round
from eaglechat.words.bars import bar, round_glyph


class Bar(Widget):
    """A share of a whole as one line."""

    COMPONENT_CLASSES = {"bar--filled"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._share = 0.0

    def show(self, share: float) -> None:
        if self._share != share:
            self._share = share
            self.refresh()

    def render(self) -> Content:
        return Content.styled(
            bar(self._share, self.content_size.width), self.get_visual_style("bar--filled")
        )


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

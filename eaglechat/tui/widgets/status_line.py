"""The panel on one line, for terminals too small for the panel itself."""

from __future__ import annotations

from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from eaglechat.tui.texts import wording
from eaglechat.tui.texts.bars import bar
from eaglechat.tui.texts.numbers import Numbers
from eaglechat.tui.texts.statistics import ACCEPTANCE_RATE, IN_STATUS_LINE, of_whole_reply
from eaglechat.wire.protocol import AUTO

_GAUGE_WIDTH = 10
_SEPARATOR = "  "
_GAUGE_FROM, _REASON_FROM = 87, 98
"""Widths in cells from which a line under auto, whose choice is longer than a set number, has the
gauge and the reason of the choice."""


class StatusLine(Widget):
    """Acceptance, mean accepted length, speed, n_draft_max, context. Nothing is cut: if not all of
    it fits, the gauge or the reason why nothing is drafted is left out; if that is not enough,
    whole parts are left out from the end."""

    COMPONENT_CLASSES = {"status--gauge", "status--value"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._numbers: Numbers | None = None

    def show(self, numbers: Numbers) -> None:
        if self._numbers != numbers:
            self._numbers = numbers
            self.refresh()

    def render(self) -> Content:
        numbers = self._numbers
        if numbers is None:
            return Content("")
        width = self.content_size.width
        for is_short in (False, True):
            whole = Content(_SEPARATOR).join(self._parts(numbers, is_short=is_short))
            if whole.cell_length <= width:
                return whole
        line = Content("")
        for part in self._parts(numbers):
            longer = Content.assemble(line, _SEPARATOR, part) if line else part
            if longer.cell_length > width:
                break
            line = longer
        return line

    def _draft_length(self, numbers: Numbers, value: Style) -> Content:
        if numbers.controls.n_draft_max != AUTO:
            return Content.assemble("draft ≤", (str(numbers.controls.n_draft_max), value))
        chosen = numbers.auto
        if chosen is None:
            return Content.assemble("draft ", (AUTO, value))
        why = f" ({wording.auto_reason(chosen)})" if self.content_size.width >= _REASON_FROM else ""
        return Content.assemble(f"{AUTO} ", (wording.auto_in_short(chosen), value), why)

    def _gauge(self, numbers: Numbers, rate: float | None) -> Content:
        if numbers.controls.n_draft_max == AUTO and self.content_size.width < _GAUGE_FROM:
            return Content("")
        style = self.get_visual_style("status--gauge")
        return Content.assemble(" ", (bar(rate or 0.0, _GAUGE_WIDTH), style))

    def _parts(self, numbers: Numbers, *, is_short: bool = False) -> list[Content]:
        value = self.get_visual_style("status--value")
        rate = ACCEPTANCE_RATE.value(numbers.measured)
        if numbers.unreported and numbers.reply.is_of_whole_reply:
            first = Content.styled(of_whole_reply(numbers.reply), value)
        elif numbers.unreported:
            first = Content.assemble("speculation ", (numbers.unreported, value))
        elif numbers.off:
            first = Content.assemble(("speculation off", value), f": {numbers.off}")
            if is_short or first.cell_length > self.content_size.width:
                first = Content.styled("speculation off", value)
        else:
            gauge = Content("") if is_short else self._gauge(numbers, rate)
            first = Content.assemble(
                "accepted", gauge, (f" {ACCEPTANCE_RATE.shown(numbers.measured)}", value)
            )
        used = numbers.room.replace(" of ", "/")
        parts = [
            first,
            *(
                Content.assemble(before, (one.shown(numbers.measured), value), after)
                for before, one, after in IN_STATUS_LINE
                if not (numbers.unreported and one.table == "speculation")
            ),
        ]
        if numbers.drafts_as_asked:
            parts.append(self._draft_length(numbers, value))
        return [*parts, Content.assemble("context ", (used, value))]

"""What is measured of a reply, in the panel: one widget that draws all of it."""

from __future__ import annotations

from collections.abc import Iterator

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from eaglechat.chat.refusals import SWITCHED_OFF
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.widgets.panel import drawings
from eaglechat.wire.protocol import AUTO
from eaglechat.words import wording
from eaglechat.words.numbers import Numbers
from eaglechat.words.statistics import of_whole_reply

_WHY_ROWS, _STRIP_ROWS = 4, 2
_TOOLTIPS = {
    "speed": "Tokens per second of this reply against plain decoding, since the draft length was "
    "last set by hand, and the error (95%). Plain decoding is measured in a few rounds of the same "
    "reply that draft nothing. “At most here” is what a draft would give that costs nothing and is "
    "always right: this quantisation's passes over several tokens were timed when it was loaded.",
    "chart": "Tokens per second over this reply, oldest at the left. The line is plain decoding; "
    "the highest column is three times as fast, or more. It is grey where nothing was drafted, and "
    "until it is known whether drafting is faster.",
    "why": "One round, as the mean of those of this reply that drafted: the time to draft, the "
    "target's pass that checks the guesses, and the tokens that they give; below it, plain "
    "decoding. Then the share of the tested guesses that the target kept, and that of the first "
    "guess of a round, the second, and so on. All since the draft length was last set by hand.",
}
"""Explanations of the parts that have one."""
_Row = tuple[str, Content]
"""A row, and the part that it belongs to."""


class Measures(Widget):
    """Shows whether drafting is faster and why, and the rounds."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._numbers: Numbers | None = None
        self._rows: list[_Row] = []
        self._width = 0
        """That the rows were drawn for."""
        self._is_close = False

    def show(self, numbers: Numbers, *, is_close: bool) -> None:
        """`is_close` leaves out empty rows, where the screen is low."""
        self._numbers, self._is_close = numbers, is_close
        before = self._rows
        self._draw(numbers)
        if [(row.plain, row.spans) for _, row in before] != [
            (row.plain, row.spans) for _, row in self._rows
        ]:
            self.refresh(layout=len(before) != len(self._rows))

    def _draw(self, numbers: Numbers) -> None:
        self._width = self.content_size.width
        self._rows = [*self._drawn(numbers, self._width)]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len([*self._drawn(self._numbers, width)]) if self._numbers is not None else 0

    def render(self) -> Content:
        if self._numbers is not None and self._width != self.content_size.width:
            self._draw(self._numbers)
        return Content("\n").join(row for _, row in self._rows)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        part = self._rows[event.y][0] if event.y < len(self._rows) else ""
        self.tooltip = _TOOLTIPS.get(part)

    def _drawn(self, numbers: Numbers, width: int) -> Iterator[_Row]:
        known, rounds = numbers.headline, numbers.rounds
        empty = Content("")

        def gap() -> Iterator[_Row]:
            if not self._is_close:
                yield "", empty

        engine = f" · {numbers.engine}" if numbers.engine else ""
        yield "", Content.styled(wording.fitting(f"SPEED{engine}", width), drawings.HEADING)
        for row in drawings.speed(known, width, is_begun=bool(rounds)):
            yield "speed", row
        yield from gap()
        for row in drawings.chart(rounds, known, width):
            yield "chart", row
        said = _said(numbers)
        # What is said of drafting stands in the empty row above WHY, so that nothing moves.
        lines = Content.styled(said, drawings.SAID).wrap(width) if said and width else [empty]
        for row in lines:
            yield "", row
        if numbers.unreported is not None:
            return
        yield "", Content.styled("WHY", drawings.HEADING)
        stretch = None if known.state == "plain" else numbers.stretch
        why = drawings.why(numbers.means, known.plain_per_second, stretch, width)
        for row in [*why, *[empty] * (_WHY_ROWS - len(why))]:
            yield "why", row
        yield from gap()
        strip = drawings.strip(rounds, width)
        for row in [*strip, *[empty] * (_STRIP_ROWS - len(strip))]:
            yield "", row


def _said(numbers: Numbers) -> str:
    """What there is to say of drafting beside the numbers: that there is none, or only some; and
    what helps if it is slower."""
    if numbers.off:
        return "Off" if numbers.off == SWITCHED_OFF else f"Off: {numbers.off}."
    if numbers.unreported:
        known = numbers.unreported
        if numbers.reply.is_of_whole_reply:
            known = f"this reply: {of_whole_reply(numbers.reply)}; more is {known}"
        return wording.sentence(known)
    if numbers.headline.verdict == "slower" and numbers.controls.n_draft_max != AUTO:
        return with_keys("{chat.auto} lets measurement choose the length")
    return "No draft model: n-grams only" if numbers.only_ngrams else ""

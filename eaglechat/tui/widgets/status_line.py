"""The panel on one line, for terminals too small for the panel itself."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget

from eaglechat.tui.commands.keys import short_key_of
from eaglechat.tui.widgets.panel.measures import DRAFTED, VALUE, VERDICTS
from eaglechat.wire.protocol import AUTO
from eaglechat.words import headline, wording
from eaglechat.words.bars import round_glyph
from eaglechat.words.numbers import Numbers
from eaglechat.words.statistics import of_whole_reply

_ROUNDS, _LEAST_ROUNDS = 12, 4
"""The most rounds it shows, and the fewest that say something."""
_GAP = "   "


class StatusLine(Widget):
    """The headline, tokens per second, the share of guesses kept, the latest rounds, the draft
    length and its keys. The rounds take the room that is left; other parts are left out whole, the
    last ones first, until the rest fits."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._numbers: Numbers | None = None

    def show(self, numbers: Numbers) -> None:
        if self._numbers != numbers:
            self._numbers = numbers
            self.refresh()

    def render(self) -> Content:
        if self._numbers is None:
            return Content("")
        width = self.content_size.width
        parts = self._parts(self._numbers, 0)
        room = width - _joined(parts).cell_length - len(_GAP)
        if room >= _LEAST_ROUNDS:
            parts = self._parts(self._numbers, min(room, _ROUNDS))
        for rank in sorted({rank for rank, _ in parts}, reverse=True):
            line = _joined([part for part in parts if part[0] <= rank])
            if line.cell_length <= width:
                return line
        return Content(wording.fitting(parts[0][1].plain, width))

    def _parts(self, numbers: Numbers, n_rounds: int) -> list[tuple[int, Content]]:
        """The parts in their order; those of the highest rank are left out first."""
        known = numbers.headline
        drafts = not (numbers.off or numbers.unreported)
        parts: list[tuple[int, Content]] = []
        if numbers.off:
            parts.append((0, Content.styled("speculation off", VALUE)))
        elif not numbers.unreported and (said := headline.in_short(known)):
            parts.append((0, Content.styled(said, VERDICTS.get(known.verdict or "", VALUE))))
        if speed := headline.speed(known):
            rate, unit = speed.split(" ")
            parts.append((0, Content.assemble((rate, VALUE), f" {unit}")))
        if numbers.off:
            parts.append((3, Content(numbers.off)))
        elif numbers.unreported and numbers.reply.is_of_whole_reply:
            parts.append((1, Content.styled(of_whole_reply(numbers.reply), VALUE)))
        elif numbers.unreported:
            parts.append((1, Content(f"speculation {numbers.unreported}")))
        kept = numbers.stretch.acceptance_rate
        if drafts and kept is not None:
            parts.append((2, Content.assemble("kept ", (wording.percent(kept), VALUE))))
        if drafts and numbers.rounds and n_rounds:
            strip = "".join(map(round_glyph, numbers.rounds[-n_rounds:]))
            parts.append((3, Content.styled(strip, DRAFTED)))
        if numbers.drafts_as_asked:
            parts.append((1, Content.assemble("length ", (_length(numbers), VALUE))))
            parts.append((3, Content(f"{short_key_of('chat.less')}- {short_key_of('chat.more')}+")))
        return parts


def _joined(parts: Sequence[tuple[int, Content]]) -> Content:
    return Content(_GAP).join([part for _, part in parts])


def _length(numbers: Numbers) -> str:
    if numbers.controls.n_draft_max != AUTO:
        return str(numbers.controls.n_draft_max)
    return f"{AUTO} {wording.auto_in_short(numbers.auto)}" if numbers.auto else AUTO

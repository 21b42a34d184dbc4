"""The panel on one line, for terminals too small for the panel itself."""

from __future__ import annotations

from collections.abc import Iterator

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
    """The headline, tokens per second, the share of guesses kept, the draft length and its keys, as
    far as they have room, and in what is left of it the latest rounds."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._numbers: Numbers | None = None

    def show(self, numbers: Numbers) -> None:
        if self._numbers != numbers:
            self._numbers = numbers
            self.refresh()

    def render(self) -> Content:
        if (numbers := self._numbers) is None:
            return Content("")
        line, width = Content(""), self.content_size.width
        for part in _parts(numbers):
            longer = Content(_GAP).join([line, part]) if line else part
            if line and longer.cell_length > width:
                break
            line = longer
        room = min(width - line.cell_length - len(_GAP), _ROUNDS)
        if _drafts(numbers) and numbers.rounds and room >= _LEAST_ROUNDS:
            strip = "".join(map(round_glyph, numbers.rounds[-room:]))
            line = Content.assemble(line, _GAP, (strip, DRAFTED))
        return line


def _drafts(numbers: Numbers) -> bool:
    return not (numbers.off or numbers.unreported)


def _parts(numbers: Numbers) -> Iterator[Content]:
    known, kept = numbers.headline, numbers.stretch.acceptance_rate
    if numbers.off:
        yield Content.styled("speculation off", VALUE)
    elif not numbers.unreported and (said := headline.in_short(known)):
        yield Content.styled(said, VERDICTS.get(known.verdict or "", VALUE))
    if speed := headline.speed(known):
        rate, unit = speed.split(" ")
        yield Content.assemble((rate, VALUE), f" {unit}")
    if numbers.off:
        yield Content(numbers.off)
    elif numbers.unreported and numbers.reply.is_of_whole_reply:
        yield Content.styled(of_whole_reply(numbers.reply), VALUE)
    elif numbers.unreported:
        yield Content(f"speculation {numbers.unreported}")
    elif kept is not None:
        yield Content.assemble("kept ", (wording.percent(kept), VALUE))
    if numbers.drafts_as_asked:
        yield Content.assemble("length ", (_length(numbers), VALUE))
        yield Content(f"{short_key_of('chat.less')}- {short_key_of('chat.more')}+")


def _length(numbers: Numbers) -> str:
    if numbers.controls.n_draft_max != AUTO:
        return str(numbers.controls.n_draft_max)
    return f"{AUTO} {wording.auto_in_short(numbers.auto)}" if numbers.auto else AUTO

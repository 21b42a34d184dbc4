"""The panel on one line, for terminals too small for the panel itself."""

from __future__ import annotations

from collections.abc import Iterator

from textual.content import Content
from textual.widget import Widget

from eaglechat.chat.session import ChatSession
from eaglechat.tui.commands.keys import short_key_of
from eaglechat.tui.widgets.panel.measures import DRAFTED, VALUE, VERDICTS
from eaglechat.wire.protocol import AUTO
from eaglechat.words import headline, numbers, wording
from eaglechat.words.bars import round_glyph
from eaglechat.words.statistics import of_whole_reply

_ROUNDS, _LEAST_ROUNDS = 12, 4
"""The most rounds it shows, and the fewest that say something."""
_GAP = "   "


class StatusLine(Widget):
    """The headline, tokens per second, the share of guesses kept, the draft length and its keys, as
    far as they have room, and in what is left of it the latest rounds."""

    def __init__(self, session: ChatSession) -> None:
        super().__init__(id="status")
        self._session = session

    def render(self) -> Content:
        session, line, width = self._session, Content(""), self.content_size.width
        for part in _parts(session):
            longer = Content(_GAP).join([line, part]) if line else part
            if line and longer.cell_length > width:
                break
            line = longer
        room = min(width - line.cell_length - len(_GAP), _ROUNDS)
        rounds = session.shown.rounds if session.shown else ()
        drafts = not (numbers.off(session) or numbers.unreported(session))
        if drafts and rounds and room >= _LEAST_ROUNDS:
            strip = "".join(map(round_glyph, rounds[-room:]))
            line = Content.assemble(line, _GAP, (strip, DRAFTED))
        return line


def _parts(session: ChatSession) -> Iterator[Content]:
    known, shown = numbers.headline(session), session.shown
    off, unreported = numbers.off(session), numbers.unreported(session)
    if off:
        yield Content.styled("speculation off", VALUE)
    elif not unreported and (said := headline.in_short(known)):
        yield Content.styled(said, VERDICTS.get(known.verdict or "", VALUE))
    if speed := headline.speed(known):
        rate, unit = speed.split(" ")
        yield Content.assemble((rate, VALUE), f" {unit}")
    if off:
        yield Content(off)
    elif unreported and shown and shown.stats.is_of_whole_reply:
        yield Content.styled(of_whole_reply(shown.stats), VALUE)
    elif unreported:
        yield Content(f"speculation {unreported}")
    elif shown and (kept := shown.stretch.stats.acceptance_rate) is not None:
        yield Content.assemble("kept ", (wording.percent(kept), VALUE))
    if session.can.draft_length:
        length = str(session.controls.n_draft_max)
        if length == AUTO and (auto := numbers.auto(session)):
            chosen = f"{auto.n} tree" if auto.shape == "tree" else str(auto.n)
            length = f"{AUTO} {chosen if auto.n else 'plain'}"
        yield Content.assemble("length ", (length, VALUE))
        yield Content(f"{short_key_of('chat.less')}- {short_key_of('chat.more')}+")

"""Whether drafting is faster than plain decoding, and by how much: the first thing that the screen
says of a reply.

It follows from the reply's own rounds since its draft length was last set by hand
(`stretch.py`): while it is written, afterwards, and when the chat is opened again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from eaglechat.chat.recording import Recording
from eaglechat.wire.gain import GainVerdict, MeasuredGain
from eaglechat.wire.protocol import PairInfo
from eaglechat.wire.records import per_second

State = Literal["none", "plain", "few", "measuring", "not measured", "repeats", "told"]


@dataclass(frozen=True)
class Headline:
    """A reply's speed against plain decoding."""

    state: State = "none"
    """none: there is no round yet; plain: nothing was to be drafted; few: too few rounds for a
    speed; measuring: too few plain rounds yet; not measured: the reply has, and will have, too few;
    repeats: the text repeats itself, which says nothing of the pair."""
    tokens_per_second: float | None = None
    """Of the rounds."""
    gain: MeasuredGain | None = None
    """None unless it is told."""
    plain_per_second: float | None = None
    """Tokens per second of plain decoding, where it was measured; a plain reply's own."""
    of: str = ""
    """The quantisation that decodes plainly; empty if it is not known."""
    most: float | None = None
    """The most that drafting can gain here, if that is known."""

    @property
    def verdict(self) -> GainVerdict | None:
        """None if there is none to tell."""
        return self.gain.verdict if self.gain else None


def headline_of(
    recording: Recording, info: PairInfo | None = None, *, is_over: bool = True
) -> Headline:
    """The headline of a reply; `info` is of the pair that wrote it, if that is loaded."""
    of, most = (info.target.quantization, info.most) if info else ("", None)
    headline = partial(Headline, of=of, most=most)
    stretch = recording.stretch
    rate, known = stretch.tokens_per_second, stretch.speed_up.speed_up()
    plain = known.plain_per_second if known else None
    if not stretch.stats.rounds:
        return headline()
    if stretch.plain_rounds == stretch.stats.rounds and not stretch.is_auto:
        return headline("plain" if rate else "few", rate, None, rate)
    if rate is None:
        few = per_second(stretch.stats.tokens, stretch.ms) if is_over else None
        return headline("few", few)
    if stretch.repeats_itself:
        return headline("repeats", rate, None, plain)
    if known is not None:
        return headline("told", rate, known.gain, plain)
    is_own = not recording.terms.engine
    return headline("measuring" if is_own and not is_over else "not measured", rate)

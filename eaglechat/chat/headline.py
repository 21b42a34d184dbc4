"""Whether drafting is faster than plain decoding, and by how much: the first thing that the screen
says of a reply.

Plain decoding is measured, never assumed. In this order, the first that is known:

1. the plain rounds of the same reply: those among the latest rounds, or else all of them;
2. what auto knows of plain rounds here and now, from this and earlier replies;
3. an earlier measurement of this pair on this machine, at a comparable context;
4. the passes that were timed when the pair was loaded.

Plain rounds of a reply that drafts still hand over features to the draft. The time of that is left
out where the engine reports it; that llama.cpp writes them costs a few percent, and is not.

The error of the speed-up combines those of both speeds, as if they were independent. Each has how
much its rounds scatter (`Speed`); auto's has its filter's; the load's passes are few and alone, and
have `_LOAD_ERROR`. It does not have that the machine may have been busier earlier: what is not of
the same reply is marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot
from typing import Literal

from eaglechat.chat.recording import Plain, Recording
from eaglechat.wire.protocol import AUTO
from eaglechat.wire.records import Round
from eaglechat.wire.stats import ROLLING_ROUNDS, Speed, SpeedsFold

_LOAD_ERROR = 0.3
"""Plain passes timed at load were 4 to 16% faster than those of replies on a quiet machine: the
shortest of a few counts, and nothing is sampled. The rest is for a machine that was busy then."""
_SAME = 0.05
"""A speed-up that is no further from 1 is not written as a number: it would be 1.0x."""

Verdict = Literal["faster", "same", "slower"]


@dataclass(frozen=True)
class Headline:
    """A reply's speed against plain decoding; during the reply, that of its latest rounds."""

    speed: Speed | None = None
    """Of the rounds, without what the engine does between them; None while they are too few."""
    tokens_per_second: float | None = None
    """Of the whole reply once it is over, as everywhere; before, that of `speed`."""
    plain: Plain | None = None
    """None if nothing was measured, or if nothing is drafted: then `speed` is plain decoding."""
    is_plain: bool = False
    """Nothing was drafted, and nobody left that to auto."""

    @property
    def level(self) -> Plain | None:
        """Plain decoding, which is a plain reply's own speed."""
        return Plain(self.speed, "reply") if self.is_plain and self.speed else self.plain

    @property
    def speed_up(self) -> float | None:
        """How many times as fast as plain decoding."""
        if self.speed is None or self.plain is None:
            return None
        return self.speed.tokens_per_second / self.plain.speed.tokens_per_second

    @property
    def error(self) -> float:
        """The speed-up is known to plus or minus this: two standard errors."""
        if self.speed is None or self.plain is None or self.speed_up is None:
            return 0.0
        relative = (one.error / one.tokens_per_second for one in (self.speed, self.plain.speed))
        return self.speed_up * hypot(*relative)

    @property
    def verdict(self) -> Verdict | None:
        if self.speed_up is None:
            return None
        if abs(self.speed_up - 1.0) <= max(self.error, _SAME):
            return "same"
        return "faster" if self.speed_up > 1.0 else "slower"


def headline_of(
    recording: Recording, before: Plain | None = None, *, is_over: bool = True
) -> Headline:
    """The headline of a reply. `before` is the plain speed that was known before it."""
    rounds = recording.rounds
    if not rounds:
        return Headline(plain=before)
    whole = recording.speeds
    seen = whole if is_over else _of(_latest(rounds))
    speed, latest = seen.all.speed(), rounds[-1]
    rate = speed.tokens_per_second if speed else None
    if is_over and recording.end is not None:
        rate = recording.end.tokens_per_second or None
    is_auto = any(round_.auto for round_ in (rounds[0], latest))
    if seen.plain.rounds == seen.all.rounds and not is_auto:
        return Headline(speed, rate, is_plain=True)
    own = seen.plain.speed() or whole.plain.speed()
    if own is not None:
        return Headline(speed, rate, Plain(own, "reply"))
    return Headline(speed, rate, _known_to_auto(latest) or before)


def _known_to_auto(round_: Round) -> Plain | None:
    auto = round_.auto
    if auto is None or not auto.tokens_per_second:
        return None
    return Plain(Speed(auto.tokens_per_second[0], auto.plain_error), "auto")


def timed_at_load(plain_ms: float | None) -> Plain | None:
    """The plain speed from the time of a pass when the pair was loaded."""
    if not plain_ms:
        return None
    return Plain(Speed(1000.0 / plain_ms, _LOAD_ERROR * 1000.0 / plain_ms), "load")


def _of(rounds: Iterator[Round]) -> SpeedsFold:
    fold = SpeedsFold()
    for round_ in rounds:
        fold.add(round_)
    return fold


def _latest(rounds: Sequence[Round]) -> Iterator[Round]:
    """The latest rounds, newest first, back to where the draft length was last set by hand."""
    setting = _setting(rounds[-1])
    for round_ in reversed(rounds[-ROLLING_ROUNDS:]):
        if _setting(round_) != setting:
            return
        yield round_


def _setting(round_: Round) -> int | str:
    return AUTO if round_.auto is not None else round_.n_draft_max

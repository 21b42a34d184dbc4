"""What was measured of a reply, of some of its rounds, or of a part of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from eaglechat.wire.records import Part, ReplyTimings, Round, per_second, sums
from eaglechat.wire.stats import SpeculationStats, stats_of


class Measured(msgspec.Struct, frozen=True):
    """What a statistic is computed from.

    `stats` is None if the engine does not report acceptance, `timings` if an error ended the
    reply.
    """

    stats: SpeculationStats | None = None
    tokens: int = 0
    timings: ReplyTimings | None = None

    @property
    def ms(self) -> float:
        """Time of generation; 0 if it is not known."""
        return self.timings.generation_ms if self.timings else 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens over the time of generation, or None if no time has passed."""
        return per_second(self.tokens, self.ms)


class MeasuredPart(Measured, frozen=True):
    """The rounds of one part of a reply. A round counts towards the part in which it began."""

    stats: SpeculationStats = SpeculationStats()
    written: int = 0
    """Tokens that belong to the part; markers belong to none."""


def measured(rounds: Sequence[Round]) -> Measured:
    """These rounds as they were measured, without prefill."""
    times = [round_.timings for round_ in rounds]
    timings = ReplyTimings(
        prefill_ms=0.0,
        prefill_tokens=0,
        reused_tokens=0,
        generation_ms=sum(time.total_ms for time in times),
        **sums(times),
    )
    return Measured(stats_of(rounds), sum(len(round_.tokens) for round_ in rounds), timings)


def by_part(rounds: Sequence[Round]) -> dict[Part, MeasuredPart]:
    """By part, of those that the reply has."""
    part, begun = Part.ANSWER, {part: list[Round]() for part in Part}
    for round_ in rounds:
        # A round that has only markers belongs to the part before it.
        part = round_.part or part
        begun[part].append(round_)
    written = Counter(token.part for round_ in rounds for token in round_.tokens)
    return {
        part: MeasuredPart(**msgspec.structs.asdict(measured(own)), written=written[part])
        for part, own in begun.items()
        if written[part]
    }

"""What was measured of a reply, of a part of it, and of the rounds since its draft length was last
set by hand. All figures that the screen shows together are of these rounds: how fast they were, and
what was kept of their drafts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from eaglechat.wire.gain import GainOfRounds, MeasuredGain
from eaglechat.wire.records import Part, ReplyTimings, Round, per_second, summed, sums
from eaglechat.wire.stats import SpeculationStats, stats_of

FEWEST_ROUNDS = 8
"""The fewest rounds whose speed is told."""
_GRAM = 8
"""Tokens of a passage that may have occurred before."""
_REPEATED = 0.5
"""The share of passages that occurred before, from which on a text repeats itself."""
_FEWEST_PASSAGES = 100


class Measured(msgspec.Struct, frozen=True):
    """What a statistic is computed from; `timings` is None if an error ended the reply."""

    stats: SpeculationStats = SpeculationStats()
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


def by_part(rounds: Sequence[Round]) -> dict[Part, Measured]:
    """By part, of those that the reply has. A round counts towards the part in which it began."""
    part, begun = Part.ANSWER, {part: list[Round]() for part in Part}
    for round_ in rounds:
        # A round that has only markers belongs to the part before it.
        part = round_.part or part
        begun[part].append(round_)
    there = {token.part for round_ in rounds for token in round_.tokens}
    return {part: measured(own) for part, own in begun.items() if part in there}


class Passages:
    """Whether a text repeats itself, at a cost that does not grow."""

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._last: deque[int] = deque(maxlen=_GRAM)
        self._seen: set[int] = set()
        self._n = 0
        self.read(ids)

    def read(self, ids: Iterable[int]) -> None:
        """The next tokens of the text."""
        for id in ids:
            self._last.append(id)
            if len(self._last) == _GRAM:
                self._n += 1
                self._seen.add(hash(tuple(self._last)))

    @property
    def repeat(self) -> bool:
        """Whether most of the text occurred in it before. n-grams and drafts guess such text
        nearly always, which says nothing of other replies."""
        repeated = self._n - len(self._seen)
        return self._n >= _FEWEST_PASSAGES and repeated > _REPEATED * self._n


class Stretch:
    """Adds rounds one by one, at a cost that does not grow; begins anew where the length was
    changed."""

    def __init__(self) -> None:
        self._length: int | None = None
        self._begin()

    def _begin(self) -> None:
        self.plain_rounds = 0
        self.ms = 0.0
        self.is_auto = False
        self.stats = SpeculationStats()
        self.against_plain = GainOfRounds()
        self._drafted_tokens, self._drafted_ms = 0, 0.0
        self._draft_ms: float | None = 0.0
        self.passages = Passages()

    def add(self, round_: Round) -> None:
        if self.stats.rounds and round_.length_by_hand != self._length:
            self._begin()
        self._length = round_.length_by_hand
        times, tokens = round_.timings, len(round_.tokens)
        self.ms += times.total_ms
        self.is_auto = round_.auto is not None
        self.plain_rounds += round_.is_plain
        self.stats = self.stats.plus(round_)
        self.against_plain.add(tokens, times.total_ms, round_.plain_ms)
        if round_.drafted:
            self._drafted_tokens += tokens
            self._drafted_ms += times.total_ms
            self._draft_ms = summed((self._draft_ms, times.draft_ms, times.process_ms))
        self.passages.read(token.id for token in round_.tokens if token.id is not None)

    @property
    def tokens_per_second(self) -> float | None:
        """None while there are few rounds."""
        stats = self.stats
        return per_second(stats.tokens, self.ms) if stats.rounds >= FEWEST_ROUNDS else None

    @property
    def is_plain(self) -> bool:
        """Whether nothing was to be drafted."""
        return self.plain_rounds == self.stats.rounds and not self.is_auto

    @property
    def gain(self) -> MeasuredGain | None:
        """Against plain decoding; None where it cannot be told."""
        if self.is_plain or self.tokens_per_second is None or self.passages.repeat:
            return None
        return self.against_plain.gain()

    @property
    def round_means(self) -> tuple[float | None, float, float] | None:
        """One round, as the mean of those that drafted, or None if none did: the milliseconds to
        draft and to hand the target's features to the draft (None if they are not reported), those
        of the rest of it, and its tokens."""
        n, draft_ms = self.stats.verify_steps, self._draft_ms
        if not n:
            return None
        each = None if draft_ms is None else draft_ms / n
        return each, self._drafted_ms / n - (each or 0.0), self._drafted_tokens / n

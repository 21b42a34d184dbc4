"""Statistics of speculation, counted from rounds. The definitions:

- acceptance rate = accepted / tested (a draft token after the first rejection was not tested)
- mean accepted length = 1 + accepted / verify steps (rounds that verified a draft)
- rate at position i = accepted at i / rounds that tested i; in a tree a position is a depth

A server that counts whole replies says how many tokens were drafted and accepted, perhaps in how
many verify steps, and not which were tested: then there is a mean accepted length at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eaglechat.wire.records import NGRAM, Part, ReplyTimings, Round, per_second, sums

ROLLING_ROUNDS = 64
"""The number of latest rounds that the rolling statistics cover."""


@dataclass(frozen=True)
class DrafterStats:
    """Counts over the rounds of one drafter."""

    rounds: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / tested, or None if nothing was tested."""
        return self.accepted / self.tested if self.tested else None

    def __add__(self, other: DrafterStats) -> DrafterStats:
        return DrafterStats(
            self.rounds + other.rounds,
            self.drafted + other.drafted,
            self.tested + other.tested,
            self.accepted + other.accepted,
        )


def who_drafted(by_drafter: Mapping[str, DrafterStats], otherwise: str) -> str:
    """The draft model that proposed tokens; `otherwise` if none did."""
    return next((name for name in by_drafter if name != NGRAM), otherwise)


def of_the_draft(by_drafter: Mapping[str, DrafterStats]) -> DrafterStats:
    """The counts of the draft model, without those of n-grams."""
    return sum((by_drafter[name] for name in by_drafter if name != NGRAM), DrafterStats())


@dataclass(frozen=True)
class SpeculationStats:
    """Counts over some rounds, and the rates that follow from them."""

    rounds: int = 0
    verify_steps: int = 0
    tokens: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    tested_at: tuple[int, ...] = ()
    accepted_at: tuple[int, ...] = ()
    siblings: int = 0
    """Drafted tokens rejected beside another one that was tested in the same place of a tree."""
    trees: int = 0
    """Rounds whose draft was a tree."""
    by_drafter: dict[str, DrafterStats] = field(default_factory=dict)

    @property
    def is_of_whole_reply(self) -> bool:
        """Whether a server counted the drafted tokens over a whole reply, without its rounds. A
        round that drafts tests a token at least."""
        return self.drafted > 0 and not self.tested

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / tested, or None if nothing was tested."""
        return self.accepted / self.tested if self.tested else None

    @property
    def mean_accepted_length(self) -> float | None:
        """1 + accepted / verify steps, or None if no draft was verified."""
        return 1.0 + self.accepted / self.verify_steps if self.verify_steps else None

    @property
    def per_position(self) -> tuple[float, ...]:
        """Acceptance at draft position 0, 1, ...: accepted there / rounds that tested it."""
        pairs = zip(self.accepted_at, self.tested_at, strict=True)
        return tuple(accepted / tested for accepted, tested in pairs if tested)


class StatsFold:
    """Adds rounds one by one; `stats()` is the total so far."""

    def __init__(self) -> None:
        self._rounds = self._verify_steps = self._tokens = 0
        self._drafted = self._tested = self._accepted = 0
        # As long as the longest draft tested: a server's may be longer than any of ours.
        self._tested_at: list[int] = []
        self._accepted_at: list[int] = []
        self._siblings = self._trees = 0
        self._by_drafter: dict[str, DrafterStats] = {}

    def add(self, round_: Round) -> None:
        self._rounds += 1
        self._tokens += len(round_.tokens)
        if not round_.drafted:
            return
        self._verify_steps += 1
        self._drafted += len(round_.drafted)
        self._tested += round_.n_tested
        self._accepted += round_.n_accepted
        if round_.is_tree:
            self._trees += 1
            self._siblings += round_.n_siblings_rejected
        if round_.drafter is not None:
            before = self._by_drafter.get(round_.drafter, DrafterStats())
            counts = DrafterStats(1, len(round_.drafted), round_.n_tested, round_.n_accepted)
            self._by_drafter[round_.drafter] = before + counts
        new = max(round_.n_tested, round_.n_accepted) - len(self._tested_at)
        self._tested_at += [0] * new
        self._accepted_at += [0] * new
        for position in range(round_.n_tested):
            self._tested_at[position] += 1
        for position in range(round_.n_accepted):
            self._accepted_at[position] += 1

    def stats(self) -> SpeculationStats:
        return SpeculationStats(
            rounds=self._rounds,
            verify_steps=self._verify_steps,
            tokens=self._tokens,
            drafted=self._drafted,
            tested=self._tested,
            accepted=self._accepted,
            tested_at=tuple(self._tested_at),
            accepted_at=tuple(self._accepted_at),
            siblings=self._siblings,
            trees=self._trees,
            by_drafter=dict(self._by_drafter),
        )


def stats_of(rounds: Iterable[Round]) -> SpeculationStats:
    """The statistics of these rounds."""
    fold = StatsFold()
    for round_ in rounds:
        fold.add(round_)
    return fold.stats()


@dataclass(frozen=True)
class PartStats:
    """The rounds of one part of a reply. A round counts towards the part in which it began."""

    stats: SpeculationStats = SpeculationStats()
    tokens: int = 0
    """Tokens that belong to the part; markers belong to none."""
    ms: float = 0.0
    """Wall time of its rounds."""

    @property
    def measured(self) -> Measured:
        """All counts of its rounds. Of the times only the total is known; the others are None."""
        timings = ReplyTimings(0.0, 0, 0, generation_ms=self.ms)
        return Measured(self.stats, self.stats.tokens, timings)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of its rounds over their wall time, or None if there were none."""
        return per_second(self.stats.tokens, self.ms)


class PartsFold:
    """Adds rounds one by one, each to its part; `stats()` is the total so far."""

    def __init__(self) -> None:
        self._folds = {part: StatsFold() for part in Part}
        self._tokens = dict.fromkeys(Part, 0)
        self._ms = dict.fromkeys(Part, 0.0)
        self._part = Part.ANSWER

    def add(self, round_: Round) -> None:
        # A round that has only markers belongs to the part before it.
        self._part = round_.part or self._part
        self._folds[self._part].add(round_)
        self._ms[self._part] += round_.timings.total_ms
        for token in round_.tokens:
            if token.part is not None:
                self._tokens[token.part] += 1

    def stats(self) -> dict[Part, PartStats]:
        """By part, of those that the reply has."""
        return {
            part: PartStats(fold.stats(), self._tokens[part], self._ms[part])
            for part, fold in self._folds.items()
            if self._tokens[part]
        }


@dataclass(frozen=True)
class Measured:
    """What a statistic is computed from: a reply that has ended, or some of its rounds.

    `stats` is None if the engine does not report acceptance, `timings` if an error ended the
    reply.
    """

    stats: SpeculationStats | None = None
    tokens: int = 0
    timings: ReplyTimings | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens over the time of generation, or None if no time has passed."""
        return per_second(self.tokens, self.timings.generation_ms) if self.timings else None


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

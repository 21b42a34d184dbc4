"""Statistics of speculation, counted from rounds. The definitions:

- acceptance rate = accepted / tested (a draft token after the first rejection was not tested)
- mean accepted length = 1 + accepted / verify steps (rounds that verified a draft)
- rate at position i = accepted at i / rounds that tested i; in a tree a position is a depth

A server that counts whole replies says how many tokens were drafted and accepted, perhaps in how
many verify steps, and not which were tested: then there is a mean accepted length at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import zip_longest
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from eaglechat.wire.records import NGRAM, Round

Stats = TypeVar("Stats", bound="DrafterStats")


class DrafterStats(msgspec.Struct, frozen=True):
    """Counts over the rounds of one drafter."""

    rounds: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.tested if self.tested else None

    def __add__(self: Stats, other: Stats) -> Stats:
        return type(self)(*map(_sum, astuple(self), astuple(other)))


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        none = DrafterStats()
        return {name: one.get(name, none) + other.get(name, none) for name in {**one, **other}}
    if isinstance(one, tuple):
        return tuple(a + b for a, b in zip_longest(one, other, fillvalue=0))
    return one + other


def who_drafted(by_drafter: Mapping[str, DrafterStats], otherwise: str) -> str:
    """The draft model that proposed tokens; `otherwise` if none did."""
    return next((name for name in by_drafter if name != NGRAM), otherwise)


def of_the_draft(by_drafter: Mapping[str, DrafterStats]) -> DrafterStats:
    """The counts of the draft model, without those of n-grams."""
    return sum((by_drafter[name] for name in by_drafter if name != NGRAM), DrafterStats())


class SpeculationStats(DrafterStats, frozen=True):
    verify_steps: int = 0
    tokens: int = 0
    tested_at: tuple[int, ...] = ()
    accepted_at: tuple[int, ...] = ()
    trees: int = 0
    by_drafter: dict[str, DrafterStats] = {}

    def plus(self, round_: Round) -> SpeculationStats:
        counts = len(round_.drafted), round_.n_tested, round_.n_accepted
        own = {round_.drafter: DrafterStats(1, *counts)} if round_.drafter else {}
        of_one = of_step(*counts, len(round_.tokens))
        return self + replace(of_one, trees=int(round_.is_tree), by_drafter=own)

    @property
    def is_of_whole_reply(self) -> bool:
        """Whether a server counted the drafted tokens over a whole reply, without its rounds. A
        round that drafts tests a token at least."""
        return self.drafted > 0 and not self.tested

    @property
    def mean_accepted_length(self) -> float | None:
        return 1.0 + self.accepted / self.verify_steps if self.verify_steps else None

    @property
    def per_position(self) -> tuple[float, ...]:
        """Acceptance at draft position 0, 1, ...: accepted there / rounds that tested it."""
        pairs = zip(self.accepted_at, self.tested_at, strict=True)
        return tuple(accepted / tested for accepted, tested in pairs if tested)


def of_step(drafted: int, tested: int, accepted: int, tokens: int) -> SpeculationStats:
    """The statistics of one round that drafted a chain, or nothing."""
    if not drafted:
        return SpeculationStats(rounds=1, tokens=tokens)
    length = max(tested, accepted)
    return SpeculationStats(
        rounds=1,
        drafted=drafted,
        tested=tested,
        accepted=accepted,
        verify_steps=1,
        tokens=tokens,
        tested_at=(1,) * tested + (0,) * (length - tested),
        accepted_at=(1,) * accepted + (0,) * (length - accepted),
    )


def stats_of(rounds: Iterable[Round]) -> SpeculationStats:
    return reduce(SpeculationStats.plus, rounds, SpeculationStats())

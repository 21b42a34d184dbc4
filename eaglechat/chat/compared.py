"""What a comparison measured: its heats, what they say of each contender, and how much each look at
them may claim.

Contenders have names; the first is the one that the others are compared with, plain decoding where
the engine can decode plainly.

Whoever looks again and again at noise sees a gain sooner or later. So all looks share an error
probability of 5%: a quarter of it is the first one's, half as much each following one's, and the
last one, when time is up or the user stops, has all that is left. Looks double what was measured.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from math import expm1, inf, log, sqrt
from statistics import fmean, geometric_mean, stdev
from typing import Literal

from eaglechat.chat.recording import Recording
from eaglechat.hub.local.pairs import Pair
from eaglechat.hub.local.speeds import Gain, Speeds, setup_of
from eaglechat.settings.model import EngineSettings
from eaglechat.wire.gain import MeasuredGain, student_t
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import FinishReason, Origin, per_second
from eaglechat.wire.stats import SpeculationStats

FEWEST_HEATS = 4
LEVEL = 0.05
"""In so many of all measurements a verdict may be wrong."""


def level_of(look: int) -> float:
    """The error probability of a look after which it may go on; the first one is 0."""
    return LEVEL * 0.5 ** (look + 2)


def level_of_last(look: int) -> float:
    """That of the last look."""
    return LEVEL - sum(map(level_of, range(look)))


@dataclass(frozen=True)
class Leg:
    """What one contender wrote in a heat, and the tokens and milliseconds that count."""

    recording: Recording
    tokens: int
    ms: float

    @cached_property
    def text(self) -> str:
        return "".join(round_.text for round_ in self.recording.rounds)


@dataclass(frozen=True)
class Heat:
    """A heat that all have finished; `before` is the reply to the prompt up to its first token."""

    prompt: str
    legs: Mapping[str, Leg]
    before: str = ""


@dataclass(frozen=True)
class Fork:
    """The first token at which two replies differ: the reply up to there, and what both wrote from
    there on in this heat. Empty: that reply ended."""

    prompt: str
    before: str
    ours: str
    plain: str


@dataclass(frozen=True)
class Score:
    """How fast a contender was in some heats, of one prompt or of several."""

    name: str
    who: Speculation
    base: str
    """The contender that it is compared with."""
    heats: Sequence[Heat]
    level: float | None = None
    """The probability of a wrong claim; None while no claim is made."""

    @cached_property
    def by_prompt(self) -> dict[str, Score]:
        prompts = dict.fromkeys(heat.prompt for heat in self.heats)
        return {prompt: self.over([prompt]) for prompt in prompts}

    def over(self, prompts: Collection[str]) -> Score:
        """On these prompts together, without a claim."""
        heats = [heat for heat in self.heats if heat.prompt in prompts]
        return replace(self, heats=heats, level=None)

    @cached_property
    def _times(self) -> list[tuple[int, float, float]]:
        """Of each heat: the tokens that the base was timed for, its milliseconds, and those in
        which the contender would have written as many. A last draft may exceed them."""
        legs = [(heat.legs[self.base], heat.legs[self.name]) for heat in self.heats]
        return [(base.tokens, base.ms, own.ms * base.tokens / own.tokens) for base, own in legs]

    @property
    def tokens_per_second(self) -> float:
        tokens, _, ms = map(sum, zip(*self._times, strict=True))
        return per_second(tokens, ms) or 0.0

    @property
    def spread(self) -> float | None:
        """The standard deviation of its speeds in heats of the same prompt, as a share of their
        mean; None if no prompt had two heats."""
        squares, freedom = 0.0, 0
        for one in self.by_prompt.values():
            speeds = [tokens / ms for tokens, _, ms in one._times]
            squares += sum((speed / fmean(speeds) - 1.0) ** 2 for speed in speeds)
            freedom += len(speeds) - 1
        return sqrt(squares / freedom) if freedom else None

    @cached_property
    def gain(self) -> MeasuredGain:
        """Its error is None after too few heats, and while the comparison goes on. Over several
        prompts it is how much they differ: more heats of one are no further prompts."""
        if len(self.by_prompt) == 1:
            times = [(base_ms, ms) for _, base_ms, ms in self._times]
            ours, base_ms = sum(ms for _, ms in times), sum(base_ms for base_ms, _ in times)
            return MeasuredGain(base_ms / (ours or 1.0), _error(times, self.level))
        gains = [one.gain.speed_up for one in self.by_prompt.values()]
        gain = geometric_mean(gains)
        if self.level is None:
            return MeasuredGain(gain, None)
        deviation = stdev(map(log, gains)) / sqrt(len(gains))
        reach = student_t(len(gains) - 1, 1.0 - self.level / 2.0) * deviation
        return MeasuredGain(gain, gain * expm1(min(reach, 3.0)))

    @property
    def verdict(self) -> str:
        """As of its gain; plain if nothing was drafted, as far as the engine says; early after too
        few heats."""
        if self.gain.error is None:
            return "early"
        return "plain" if self.longest == 0 else self.gain.verdict

    @cached_property
    def stats(self) -> SpeculationStats:
        own = (heat.legs[self.name].recording.stats for heat in self.heats)
        return sum(own, SpeculationStats())

    @cached_property
    def longest(self) -> float:
        """The longest draft of a round, in tokens; infinite if the engine does not report them."""
        rounds = [one for heat in self.heats for one in heat.legs[self.name].recording.rounds]
        if any(token.origin is Origin.UNKNOWN for one in rounds for token in one.tokens):
            return inf
        return max((one.depth for one in rounds), default=0)


@dataclass(frozen=True)
class Result:
    """What a comparison measured."""

    heats: tuple[Heat, ...] = ()
    who: Mapping[str, Speculation] = field(default_factory=dict)
    """The contenders by name."""
    level: float | None = LEVEL
    """The probability of a wrong claim of the fastest contender; None: no claim is made."""
    temperature: float = 0.0

    @cached_property
    def scores(self) -> tuple[Score, ...]:
        """The one that the others are compared with first; none without a heat."""
        if not self.heats:
            return ()
        base, *others = self.who
        n_drafting = sum(not self.who[name].is_plain for name in others)
        each = None if self.level is None else self.level / max(n_drafting, 1)
        # The base is as fast as itself: no claim is made of it.
        levels = {base: None, **dict.fromkeys(others, each)}
        return tuple(
            Score(name, self.who[name], base, self.heats, own) for name, own in levels.items()
        )

    @property
    def tokens(self) -> int:
        """Of the text that all wrote."""
        return self.scores[0].stats.tokens if self.scores else 0

    @property
    def prompts(self) -> tuple[str, ...]:
        return tuple(self.scores[0].by_prompt) if self.scores else ()

    def by_category(self, categories: Mapping[str, str]) -> dict[str, list[str]]:
        """The prompts of each category, which `categories` has by prompt. One that has none is a
        category of its own."""
        prompts: dict[str, list[str]] = {}
        for prompt in self.prompts:
            prompts.setdefault(categories.get(prompt, prompt), []).append(prompt)
        return prompts

    @property
    def best(self) -> Score | None:
        """The contender that drafted and was fastest; None if there was no heat."""

        def rank(one: Score) -> tuple[float, bool]:
            return one.gain.speed_up, one.who.n_draft_max == AUTO

        drafting = (score for score in self.scores[1:] if not score.who.is_plain)
        return max(drafting, key=rank, default=None)

    def fork(self, score: Score) -> Fork | None:
        """Where the text of a contender first differs from the base's. Above temperature 0 each
        draws its own, so nothing follows from a difference."""
        if self.temperature > 0.0:
            return None
        forks = (first_fork(heat, score.name, score.base) for heat in self.heats)
        return next(filter(None, forks), None)

    @property
    def is_certain(self) -> bool:
        return self.best is not None and self.best.verdict not in {"early", "unclear"}

    def note(
        self, speeds: Speeds, pair: Pair, engine: EngineSettings, by: Literal["bench", "question"]
    ) -> None:
        """Keep what each draft length gained, where no other contender had the same one."""
        lengths = Counter((one.who.drafter, one.who.n_draft_max) for one in self.scores[1:])
        for score in self.scores[1:]:
            gain, who = score.gain, score.who
            is_only = lengths[who.drafter, who.n_draft_max] == 1
            if score.longest and not who.is_plain and gain.error is not None and is_only:
                known = Gain(
                    gain.speed_up,
                    gain.error,
                    who.n_draft_max,
                    by,
                    time.time(),
                    temperature=self.temperature,
                )
                speeds.note(setup_of(pair, engine, who.drafter), known)


def _error(values: Sequence[tuple[float, float]], level: float | None) -> float | None:
    """How far the ratio of the sums may be off, but for a share `level` of cases, by the jackknife:
    how much it changes if one of the pairs is left out. None for too few."""
    n = len(values)
    if n < FEWEST_HEATS or level is None:
        return None
    all_of_one, all_of_other = (sum(column) for column in zip(*values, strict=True))
    left_out = [(all_of_one - one) / (all_of_other - other) for one, other in values]
    mean = sum(left_out) / n
    spread = sqrt(sum((one - mean) ** 2 for one in left_out) * (n - 1) / n)
    return student_t(n - 1, 1.0 - level / 2.0) * spread


def first_fork(heat: Heat, name: str, base: str) -> Fork | None:
    """Where the text that `name` wrote first differs from what `base` wrote; None if it does not.

    The end of a leg that was cut off (cancelled, or the length or context was used up) is not a
    difference: it says nothing about the next token.
    """
    ours, plain = heat.legs[name], heat.legs[base]
    if ours.text == plain.text:
        return None
    pairs = enumerate(zip(ours.text, plain.text, strict=False))
    least = min(len(ours.text), len(plain.text))
    shared = next((place for place, (one, other) in pairs if one != other), least)
    for leg in ours, plain:
        end = leg.recording.end
        is_whole = end is not None and end.finish_reason is FinishReason.STOP
        if shared == len(leg.text) and not is_whole:
            return None
    ends = accumulate(len(token.text) for one in ours.recording.rounds for token in one.tokens)
    begin = max((end for end in ends if end <= shared), default=0)
    before = heat.before + ours.text[:begin]
    return Fork(heat.prompt, before, ours.text[begin:], plain.text[begin:])

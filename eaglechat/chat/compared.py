"""What a comparison measured: its heats, and what they say of each contender.

Contenders have names; the first is the one that the others are compared with, plain decoding where
the engine can decode plainly.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import expm1, inf, log, sqrt
from statistics import geometric_mean, stdev
from typing import Literal

from eaglechat.chat.looks import LEVEL
from eaglechat.chat.recording import Recording
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.speeds import Gain, Speeds, setup_of
from eaglechat.settings.model import EngineSettings
from eaglechat.wire.gain import MeasuredGain, student_t
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import FinishReason, Origin, Token, per_second
from eaglechat.wire.stats import SpeculationStats

FEWEST_HEATS = 4


@dataclass(frozen=True)
class Fork:
    """The first token at which two replies differ: its index, and its text in both. None: that
    reply ended before it."""

    prompt: str
    index: int
    ours: str | None
    plain: str | None
    before: str
    """The reply up to there."""
    ours_after: str
    plain_after: str
    """What both wrote from there on, in the heat in which they differ."""


@dataclass(frozen=True)
class Leg:
    """What one contender wrote in a heat, and the tokens and milliseconds that count."""

    recording: Recording
    tokens: int
    ms: float

    @cached_property
    def longest(self) -> float:
        """The longest draft of a round, in tokens; infinite if the engine does not say what was
        drafted."""
        if any(token.origin is Origin.UNKNOWN for token in _tokens(self.recording)):
            return inf
        return max((round_.depth for round_ in self.recording.rounds), default=0)


@dataclass(frozen=True)
class Heat:
    """A heat that all have finished. `start` is the place of its first token in the reply to the
    prompt, and `before` the text up to there. Heats with the same `repeat` are one measurement: a
    reply, if replies are whole."""

    prompt: str
    start: int
    legs: Mapping[str, Leg]
    repeat: int = 0
    before: str = ""


@dataclass(frozen=True)
class OnPrompt:
    """A contender on one prompt, or on several together."""

    tokens: int
    """Those that were timed, of the text that all wrote."""
    ms: float
    """In which the contender would have written as many: a last draft may exceed them."""
    speeds: tuple[float, ...]
    """Tokens per second in each repeat; empty for several prompts."""
    gain: MeasuredGain
    stats: SpeculationStats

    @property
    def tokens_per_second(self) -> float:
        return per_second(self.tokens, self.ms) or 0.0


@dataclass(frozen=True)
class Score:
    """How fast a contender was over all heats."""

    name: str
    who: Speculation
    gain: MeasuredGain
    """Its error is None after too few heats, and while the comparison goes on."""
    by_prompt: Mapping[str, OnPrompt]
    longest: float = 0
    """The longest draft of a round, in tokens; infinite if the engine does not report them."""
    fork: Fork | None = None

    def over(self, prompts: Iterable[str]) -> OnPrompt:
        """On these prompts together, of which the error is not known."""
        on = [self.by_prompt[prompt] for prompt in prompts]
        return OnPrompt(
            sum(one.tokens for one in on),
            sum(one.ms for one in on),
            (),
            MeasuredGain(geometric_mean(one.gain.speed_up for one in on), None),
            sum((one.stats for one in on), SpeculationStats()),
        )

    @cached_property
    def stats(self) -> SpeculationStats:
        return self.over(self.by_prompt).stats

    @property
    def tokens_per_second(self) -> float:
        return self.over(self.by_prompt).tokens_per_second

    @property
    def verdict(self) -> str:
        """As of its gain; plain if nothing was drafted, as far as the engine says; early after too
        few heats."""
        if self.gain.error is None:
            return "early"
        return "plain" if self.longest == 0 else self.gain.verdict


@dataclass(frozen=True)
class Result:
    """What a comparison measured."""

    scores: tuple[Score, ...] = ()
    """The one that the others are compared with first."""
    tokens: int = 0
    """Of the text that all wrote."""
    n_heats: int = 0
    temperature: float = 0.0
    """Above 0, all wrote another text than the reply to the question."""

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

    def best_on(self, prompt: str) -> Score:
        """The contender that was fastest on a prompt."""
        return max(self.scores[1:], key=lambda one: one.by_prompt[prompt].gain.speed_up)

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


def result_of(
    heats: Sequence[Heat], who: Mapping[str, Speculation], level: float | None = LEVEL
) -> Result:
    """What these heats say. A wrong claim of the fastest contender has the probability `level`;
    with None, no claim is made."""
    if not heats:
        return Result()
    base, *others = who
    of_prompts: dict[str, list[Heat]] = defaultdict(list)
    for heat in heats:
        of_prompts[heat.prompt].append(heat)
    n_drafting = sum(not who[name].is_plain for name in others)
    each = None if level is None else level / max(n_drafting, 1)
    return Result(
        tuple(_score(name, who[name], base, of_prompts, each) for name in who),
        sum(heat.legs[base].recording.stats.tokens for heat in heats),
        len(heats),
    )


def _score(
    name: str,
    who: Speculation,
    base: str,
    of_prompts: Mapping[str, Sequence[Heat]],
    level: float | None,
) -> Score:
    share = None if level is None else level / len(of_prompts)
    by_prompt = {
        prompt: _on_prompt(name, base, heats, share) for prompt, heats in of_prompts.items()
    }
    gains = [on.gain for on in by_prompt.values()]
    gain = gains[0] if len(gains) == 1 else _over_prompts([one.speed_up for one in gains], level)
    if name == base:  # as fast as itself
        gain = MeasuredGain(gain.speed_up, None)
    heats = [heat for of_prompt in of_prompts.values() for heat in of_prompt]
    longest = max(heat.legs[name].longest for heat in heats)
    forks = (first_fork(heat, name, base) for heat in heats)
    fork = next((fork for fork in forks if fork is not None), None)
    return Score(name, who, gain, by_prompt, longest, fork)


def _on_prompt(name: str, base: str, heats: Sequence[Heat], level: float | None) -> OnPrompt:
    times, by_repeat = [], dict[int, tuple[int, float]]()
    for heat in heats:
        leg, plain = heat.legs[name], heat.legs[base]
        ms = leg.ms * plain.tokens / leg.tokens
        times.append((plain.ms, ms))
        tokens, before = by_repeat.get(heat.repeat, (0, 0.0))
        by_repeat[heat.repeat] = tokens + plain.tokens, before + ms
    in_all, all_ms = sum(tokens for tokens, _ in by_repeat.values()), sum(ms for _, ms in times)
    return OnPrompt(
        in_all,
        all_ms,
        tuple(per_second(tokens, ms) or 0.0 for tokens, ms in by_repeat.values()),
        MeasuredGain(sum(plain for plain, _ in times) / (all_ms or 1.0), _error(times, level)),
        sum((heat.legs[name].recording.stats for heat in heats), SpeculationStats()),
    )


def _over_prompts(gains: Sequence[float], level: float | None) -> MeasuredGain:
    """Over several prompts, with the error of how much they differ: more heats of one are no
    further prompts."""
    gain = geometric_mean(gains)
    if level is None:
        return MeasuredGain(gain, None)
    deviation = stdev(map(log, gains)) / sqrt(len(gains))
    reach = student_t(len(gains) - 1, 1.0 - level / 2.0) * deviation
    return MeasuredGain(gain, gain * expm1(min(reach, 3.0)))


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
    reply, plain = heat.legs[name].recording, heat.legs[base].recording
    ours, theirs = text_of(reply), text_of(plain)
    if ours == theirs:
        return None
    pairs = enumerate(zip(ours, theirs, strict=False))
    shared = next((place for place, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
    for text, recording in (ours, reply), (theirs, plain):
        end = recording.end
        is_whole = end is not None and end.finish_reason is FinishReason.STOP
        if shared == len(text) and not is_whole:
            return None
    index, begin, end_of_ours = _token_at(_tokens(reply), shared)
    _, _, end_of_theirs = _token_at(_tokens(plain), shared)
    return Fork(
        heat.prompt,
        heat.start + index,
        ours[begin:end_of_ours] or None,
        theirs[begin:end_of_theirs] or None,
        before=heat.before + ours[:begin],
        ours_after=ours[begin:],
        plain_after=theirs[begin:],
    )


def _token_at(tokens: Sequence[Token], place: int) -> tuple[int, int, int]:
    """Index, start and end of the token that wrote the character at this place."""
    begin = 0
    for index, token in enumerate(tokens):
        if place < begin + len(token.text):
            return index, begin, begin + len(token.text)
        begin += len(token.text)
    return len(tokens), begin, begin


def _tokens(recording: Recording) -> list[Token]:
    return [token for round_ in recording.rounds for token in round_.tokens]


def text_of(recording: Recording) -> str:
    return "".join(token.text for token in _tokens(recording))

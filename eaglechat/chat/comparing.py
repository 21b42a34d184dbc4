"""A comparison: several ways to draft write the same replies in turn, against plain decoding, until
it is certain whether that is faster, or time is up.

A heat is a short piece of a reply. In each heat every contender continues the same text, with the
same seed, so that a slow moment of the machine falls on all of them; what plain decoding wrote is
the text of the next heat. A reply that ends begins again with another seed. A server that cannot
continue a text writes short replies from the beginning in each heat. With several prompts, each has
some heats in turn.

Only generation is timed, and up to the round that completes the heat: a draft is never cut short
because a heat ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import ceil, expm1, log, sqrt
from statistics import geometric_mean, stdev
from time import monotonic
from typing import Protocol

import msgspec

from eaglechat.chat.recording import Recording, Terms
from eaglechat.engine.bench.looks import LEVEL, Looks, minutes_for
from eaglechat.engine.bench.measure import PLAINLY, order_of
from eaglechat.links.base import Listener
from eaglechat.wire import protocol
from eaglechat.wire.gain import MeasuredGain
from eaglechat.wire.protocol import (
    AUTO,
    N_DRAFT_MAX_DEFAULT,
    SEED_LIMIT,
    AnsweredRequest,
    Hello,
    Message,
    PairInfo,
    Speculation,
)
from eaglechat.wire.records import (
    N_DRAFT_MAX_LIMIT,
    NGRAM,
    FinishReason,
    Origin,
    Prefill,
    ReplyEnd,
    Round,
    Token,
    per_second,
)
from eaglechat.wire.stats import SpeculationStats
from eaglechat.wire.student import student_t

HEAT_TOKENS, FIRST_LOOK = 20, 8
"""Tokens of a heat; heats before the first look at the results."""
_SERVER_TOKENS, _FIRST_LOOK_AT_SERVER = 128, 4
FEWEST_HEATS = 4
HEATS_IN_A_ROW = 2
"""Of one prompt, where there are several: the next prompt has to be read first."""
_MINUTES, _MINUTES_OF_SEVERAL = 2, 4
_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)


@dataclass(frozen=True)
class Asked:
    """Prompts, and what their replies are requested with."""

    prompts: Mapping[str, tuple[Message, ...]]
    """By their names."""
    terms: Terms
    plain_ms: float | None = None
    """The time of a token in plain decoding, if it is known."""


class Engine(Protocol):
    """The part of a link that a comparison uses."""

    def request(self, message: AnsweredRequest, listener: Listener) -> int: ...
    def send(self, message: protocol.Cancel) -> None: ...


def contenders(now: Speculation, info: PairInfo, hello: Hello) -> list[Speculation]:
    """Who can be compared with plain decoding; the first is drafting as it is set now, or auto if
    nothing would be drafted."""
    can, of = hello.can, partial(msgspec.structs.replace, now, enabled=True)
    if not can.draft_length:
        return [of()]
    length = now.n_draft_max or (AUTO if can.own else N_DRAFT_MAX_DEFAULT)
    drafter = AUTO if now.drafter == "none" else now.drafter
    found = [of(n_draft_max=length, drafter=drafter)]
    if info.drafter is not None:
        lengths = [one for one in _LENGTHS if one <= info.drafter.longest]
        for one in (*([AUTO] if can.own else []), *lengths):
            found.append(of(n_draft_max=one, drafter=drafter))
    elif not now.ngram and not can.restarts:
        found = []
    if not can.restarts:
        kinds = [one.kind for one in info.drafters] if len(info.drafters) > 1 else []
        found += [of(n_draft_max=AUTO, drafter=one) for one in (NGRAM, *kinds)]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Fork:
    """The first token at which two replies differ: its index, and its text in both, or its id if it
    has no text. None: that reply ended before it."""

    index: int
    ours: str | int | None
    plain: str | int | None
    before: str = ""
    """The reply up to there."""
    ours_after: str = ""
    plain_after: str = ""
    """What both wrote from there on, in the heat in which they differ."""


@dataclass(frozen=True)
class Leg:
    """What one contender wrote in a heat, and the milliseconds it took."""

    recording: Recording
    tokens: int
    ms: float

    @cached_property
    def pace(self) -> tuple[tuple[int, float], ...]:
        """Tokens and milliseconds of each round."""
        times = [(len(r.tokens), r.timings.total_ms) for r in self.recording.rounds]
        scale = self.ms / (sum(ms for _, ms in times) or 1.0)
        return tuple((tokens, ms * scale) for tokens, ms in times)


@dataclass(frozen=True)
class Heat:
    """A heat that all have finished. `start` is the place of its first token in the reply to the
    prompt."""

    prompt: str
    start: int
    legs: Mapping[Speculation, Leg]

    def ms(self, who: Speculation) -> float:
        """Milliseconds in which a contender would have written as many tokens as plain decoding,
        which a last draft may exceed."""
        leg = self.legs[who]
        return leg.ms * self.legs[PLAINLY].tokens / leg.tokens


@dataclass(frozen=True)
class Score:
    """How fast a contender was over all heats. `seconds` are for the text of plain decoding."""

    who: Speculation
    tokens_per_second: float
    seconds: float
    gain: MeasuredGain
    """Its error is None after too few heats, and while the comparison goes on."""
    by_prompt: Mapping[str, float]
    """How many times as fast as plain decoding it was on each."""
    accepted: float | None = None
    """The share of the tested tokens that was accepted."""
    is_drafted: bool = True
    """Whether it drafted at all, as far as the engine says."""
    fork: Fork | None = None

    @property
    def verdict(self) -> str:
        """As of its gain; plain if nothing was drafted; early after too few heats."""
        if self.gain.error is None:
            return "early"
        return self.gain.verdict if self.is_drafted else "plain"


@dataclass(frozen=True)
class Result:
    """What a comparison measured."""

    scores: tuple[Score, ...]
    """Plain decoding first."""
    tokens: int
    """Of the text that all wrote."""
    n_heats: int
    n_prompts: int = 1
    is_sampled: bool = True
    """Whether that is another text than the reply to the question."""

    @property
    def best(self) -> Score | None:
        """The contender that was fastest; None if there was no heat."""
        return max(self.scores[1:], key=lambda one: one.gain.speed_up, default=None)

    @property
    def is_certain(self) -> bool:
        return self.best is not None and self.best.verdict not in ("early", "unclear")


class Comparison:
    """Runs the heats on an engine, one request after the other."""

    def __init__(
        self,
        engine: Engine,
        hello: Hello,
        asked: Asked,
        who: Sequence[Speculation],
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called after each event."""
        self.who = [PLAINLY, *who]
        self.heats: list[Heat] = []
        self.is_over = self.is_stopping = False
        self.failure: protocol.Error | None = None
        self.loading: protocol.Loading | None = None
        self.prefill: Prefill | None = None
        self.legs: dict[Speculation, Leg] = {}
        """Of the heat that is running."""
        self.running = PLAINLY
        self.leg = Recording(asked.terms)
        self._goes_on = hello.can.own
        limit = asked.terms.max_tokens or 2**31
        self._names = tuple(asked.prompts)
        first = FIRST_LOOK if self._goes_on else _FIRST_LOOK_AT_SERVER
        n_prompts = len(self._names)
        self._in_a_row = HEATS_IN_A_ROW if n_prompts > 1 else 1
        # As many heats of each.
        each = self._in_a_row * n_prompts
        self._looks = Looks(each * ceil(first / each))
        self.result: Result | None = None
        """None until it is over."""
        self.heat_tokens = min(HEAT_TOKENS if self._goes_on else _SERVER_TOKENS, limit)
        # Room for a whole draft behind the last token: it is stopped after it.
        spare = N_DRAFT_MAX_LIMIT + 1 if self._goes_on else 0
        self._most, self._limit = min(self.heat_tokens + spare, limit), limit
        tokens = self._looks.next * len(self.who) * self.heat_tokens
        least = _MINUTES if n_prompts == 1 else _MINUTES_OF_SEVERAL
        self.minutes = minutes_for(tokens, asked.plain_ms, least)
        """It takes no longer than this."""
        self._ends_at = 0.0
        self._engine, self._asked = engine, asked
        self._seed, self._changed = asked.terms.sampling.draw_seed(), changed
        self._begun: dict[str, tuple[int, ...]] = {}
        """The tokens of the reply to each prompt that all continue."""
        self._left: list[Speculation] = []
        self._request_id, self._is_full = 0, False

    def start(self) -> None:
        self._ends_at = monotonic() + 60.0 * self.minutes
        self._next()

    @property
    def seconds_left(self) -> float:
        return max(self._ends_at - monotonic(), 0.0)

    def stop(self) -> None:
        """Stop at once. The finished heats count."""
        if not self.is_over and not self.is_stopping:
            self.is_stopping = True
            self._engine.send(protocol.Cancel(id=self._request_id))

    @property
    def prompt(self) -> str:
        """The name of the prompt of the running heat."""
        return self._names[len(self.heats) // self._in_a_row % len(self._names)]

    @property
    def written(self) -> str:
        """What all continue in the running heat."""
        text = ""
        for heat in self.heats:
            if heat.prompt == self.prompt:
                text = (text if heat.start else "") + _text(heat.legs[PLAINLY].recording)
        return text if self._begun.get(self.prompt) else ""

    def so_far(self) -> Result:
        """What was measured, without a claim while it goes on."""
        return self.result or self._measured(None)

    def _measured(self, level: float | None) -> Result:
        is_sampled = self._asked.terms.sampling.temperature > 0.0
        return replace(result_of(self.heats, self.who, level), is_sampled=is_sampled)

    def _end(self, result: Result | None = None) -> None:
        self.is_over = True
        self.result = result or self._measured(self._looks.last())

    def _next(self) -> None:
        """The next leg, or the end."""
        if not self._left and len(self.heats) == self._looks.next:
            result = self._measured(self._looks.take())
            if result.is_certain:
                self._end(result)
                return
        if not self._left:
            self._left = order_of(self.who, len(self.heats))
        self.running = self._left.pop(0)
        seed = (self._seed + len(self.heats)) % (SEED_LIMIT + 1)
        terms = self._asked.terms
        self.leg = Recording(
            msgspec.structs.replace(
                terms,
                sampling=msgspec.structs.replace(terms.sampling, seed=seed),
                speculation=self.running,
                max_tokens=self._most,
                top=0,
            )
        )
        self._is_full, self.loading, self.prefill = False, None, None
        self._request_id = self._engine.request(
            self.leg.terms.to_chat(
                self._asked.prompts[self.prompt], self._begun.get(self.prompt, ())
            ),
            self._heard,
        )

    def _heard(self, event: protocol.Answer) -> None:
        if self.is_over or event.id != self._request_id:
            return
        match event:
            case protocol.Loading():
                self.loading = event
            case protocol.PrefillProgress():
                self.prefill = event.prefill
            case protocol.RoundDone():
                self._add(event.round)
            case protocol.Settled():
                self.leg.settle(event.rounds)
            case protocol.Done():
                self._leg_ended(event.end, event.stats)
            case protocol.Error():
                self.failure = event
                self._end()
        if not self.seconds_left:
            self.stop()
        self._changed()

    def _add(self, round_: Round) -> None:
        if self._is_full:
            return
        self.leg.add(round_)
        if self._goes_on and self.leg.stats.tokens >= self.heat_tokens:
            # Rounds that come before it stops are not counted.
            self._is_full = True
            self._engine.send(protocol.Cancel(id=self._request_id))

    def _leg_ended(self, end: ReplyEnd, stats: SpeculationStats) -> None:
        leg, tokens, ms = self.leg, end.tokens, end.timings.generation_ms
        written = tokens
        is_cut = end.finish_reason is FinishReason.CANCELLED and not self._is_full
        if self.is_stopping or is_cut or not tokens:
            self._end()
            return
        if self._goes_on:
            # A round that measures plain decoding says nothing of drafting.
            measured = [one for one in leg.rounds if not one.is_plain_check] or leg.rounds
            ms = sum(round_.timings.total_ms for round_ in measured)
            tokens = sum(len(round_.tokens) for round_ in measured)
            written = leg.stats.tokens
        if self._is_full and (written < end.tokens or end.finish_reason is FinishReason.CANCELLED):
            end = replace(end, finish_reason=FinishReason.LENGTH, tokens=written)
        leg.finish(end, None if self._goes_on else stats)
        self.legs[self.running] = Leg(leg, tokens, ms)
        if not self._left:
            self._heat_ended()
        self._next()

    def _heat_ended(self) -> None:
        plain, prompt = self.legs[PLAINLY].recording, self.prompt
        begun = self._begun.get(prompt, ())
        self.heats.append(Heat(prompt, len(begun), self.legs))
        self.legs = {}
        assert plain.end is not None
        is_room = len(begun) + 2 * self.heat_tokens <= self._limit
        goes_on = self._goes_on and plain.end.finish_reason is FinishReason.LENGTH
        ids = plain.ids if goes_on and is_room else None
        self._begun[prompt] = (*begun, *ids) if ids else ()


def result_of(
    heats: Sequence[Heat], who: Sequence[Speculation], level: float | None = LEVEL
) -> Result:
    """What these heats say of the contenders, of which the first is plain decoding. A wrong claim
    of the fastest one has the probability `level`; with None, no claim is made."""
    tokens = sum(heat.legs[PLAINLY].tokens for heat in heats)
    each = None if level is None else level / max(len(who) - 1, 1)
    scores = tuple(_score(one, heats, tokens, each) for one in who) if heats else ()
    return Result(scores, tokens, len(heats), len({heat.prompt for heat in heats}))


def _score(who: Speculation, heats: Sequence[Heat], tokens: int, level: float | None) -> Score:
    times: dict[str, list[tuple[float, float]]] = {}
    for heat in heats:
        times.setdefault(heat.prompt, []).append((heat.ms(PLAINLY), heat.ms(who)))
    ms = sum(own for of_one in times.values() for _, own in of_one)
    legs = [heat.legs[who].recording for heat in heats]
    tested = sum(leg.stats.tested for leg in legs)
    by_prompt = {name: _ratio(of_one) for name, of_one in times.items()}
    return Score(
        who=who,
        tokens_per_second=per_second(tokens, ms) or 0.0,
        seconds=ms / 1000.0,
        gain=_gain(times, by_prompt, level),
        by_prompt=by_prompt,
        accepted=sum(leg.stats.accepted for leg in legs) / tested if tested else None,
        is_drafted=any(leg.speculated or _is_unknown(leg) for leg in legs),
        fork=_fork(heats, who),
    )


def _fork(heats: Sequence[Heat], who: Speculation) -> Fork | None:
    """The first one in all heats."""
    replies: dict[str, str] = {}
    for heat in heats:
        reply = replies.get(heat.prompt, "") if heat.start else ""
        ours, plain = heat.legs[who].recording, heat.legs[PLAINLY].recording
        fork = first_fork(ours, plain)
        if fork is not None:
            shared = "".join(token.text for token in _tokens(ours)[: fork.index])
            return replace(
                fork,
                index=heat.start + fork.index,
                before=reply + shared,
                ours_after=_text(ours)[len(shared) :],
                plain_after=_text(plain)[len(shared) :],
            )
        replies[heat.prompt] = reply + _text(plain)
    return None


def _is_unknown(leg: Recording) -> bool:
    """Whether the engine does not say what was drafted."""
    return any(token.origin is Origin.UNKNOWN for token in _tokens(leg))


def _gain(
    times: Mapping[str, Sequence[tuple[float, float]]],
    by_prompt: Mapping[str, float],
    level: float | None,
) -> MeasuredGain:
    """Of one prompt, with the error of how much its heats differ; of several, with that of how much
    they differ: more heats of one are no further prompts."""
    if len(times) == 1:
        (of_one,) = times.values()
        return MeasuredGain(_ratio(of_one), _error(of_one, level))
    gain = geometric_mean(by_prompt.values())
    n = len(by_prompt)
    if n < FEWEST_HEATS or level is None:
        return MeasuredGain(gain, None)
    deviation = stdev(map(log, by_prompt.values())) / sqrt(n)
    reach = student_t(n - 1, 1.0 - level / 2.0) * deviation
    return MeasuredGain(gain, gain * expm1(min(reach, 3.0)))


def _ratio(values: Sequence[tuple[float, float]]) -> float:
    return sum(one for one, _ in values) / (sum(other for _, other in values) or 1.0)


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


def first_fork(reply: Recording, plain: Recording) -> Fork | None:
    """The first token at which two recordings differ; None if there is none.

    The end of a recording that was cut off (cancelled, or the length or context was used up) is not
    a difference: it says nothing about the next token.
    """
    ours, theirs = _tokens(reply), _tokens(plain)
    if any(token.id is None for token in (*ours, *theirs)):
        return _fork_of_texts(reply, plain)
    for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one.id != other.id:
            return Fork(index, _named(one), _named(other))
    if len(ours) == len(theirs):
        return None
    shared = min(len(ours), len(theirs))
    shorter, rest = (reply, theirs[shared:]) if len(ours) == shared else (plain, ours[shared:])
    if not _ended_by_itself(shorter):
        return None
    more = _named(rest[0])
    return Fork(shared, *((None, more) if shorter is reply else (more, None)))


def _fork_of_texts(reply: Recording, plain: Recording) -> Fork | None:
    """The same by text, for an engine that reports no ids and may send several tokens as one."""
    ours, theirs = _tokens(reply), _tokens(plain)
    one, other = _text(reply), _text(plain)
    if one == other:
        return None
    pairs = enumerate(zip(one, other, strict=False))
    shared = next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
    for text, recording in (one, reply), (other, plain):
        if shared == len(text) and not _ended_by_itself(recording):
            return None
    index, begin, end = _token_at(ours, shared)
    _, _, end_of_other = _token_at(theirs, shared)
    return Fork(index, one[begin:end] or None, other[begin:end_of_other] or None)


def _token_at(tokens: Sequence[Token], place: int) -> tuple[int, int, int]:
    """Index, start and end of the token that wrote the character at this place."""
    begin = 0
    for index, token in enumerate(tokens):
        if place < begin + len(token.text):
            return index, begin, begin + len(token.text)
        begin += len(token.text)
    return len(tokens), begin, begin


def _ended_by_itself(recording: Recording) -> bool:
    return recording.end is not None and recording.end.finish_reason is FinishReason.STOP


def _tokens(recording: Recording) -> list[Token]:
    return [token for round_ in recording.rounds for token in round_.tokens]


def _text(recording: Recording) -> str:
    return "".join(token.text for token in _tokens(recording))


def _named(token: Token) -> str | int | None:
    return token.text or token.id

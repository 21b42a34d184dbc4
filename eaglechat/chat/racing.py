"""A race: several ways to draft write the same reply in turn, against plain decoding.

A heat is a short piece of the reply. In each heat every contender continues the same text, with the
same seed, so that a slow moment of the machine falls on all of them; what plain decoding wrote is
the text of the next heat. A reply that ends begins again with another seed. A server that cannot
continue a text writes short replies from the beginning in each heat.

Only generation is timed, and up to the round that completes the heat: a draft is never cut short
because a heat ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import sqrt
from typing import Protocol

import msgspec

from eaglechat.chat.recording import Recording, Terms
from eaglechat.engine.bench.measure import PLAINLY, order_of
from eaglechat.engine.bench.verdict import MeasuredGain
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.speeds import Gain, PlainSpeed, Speeds
from eaglechat.links.base import AnsweredRequest, Listener
from eaglechat.wire import protocol
from eaglechat.wire.protocol import (
    AUTO,
    N_DRAFT_MAX_DEFAULT,
    SEED_LIMIT,
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

HEATS, HEAT_TOKENS = 16, 20
_HEATS_OF_SERVER, _SERVER_TOKENS = 4, 128
FEWEST_HEATS = 4
_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_T = (3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Student's t for 95%, from 3 to 15 degrees of freedom."""


@dataclass(frozen=True)
class Asked:
    """A question, and what its reply is requested with."""

    messages: tuple[Message, ...]
    terms: Terms


class Engine(Protocol):
    """The part of a link that a race uses."""

    def request(self, message: AnsweredRequest, listener: Listener) -> int: ...
    def send(self, message: protocol.Cancel) -> None: ...


def contenders(now: Speculation, info: PairInfo, hello: Hello) -> list[Speculation]:
    """Who can race against plain decoding; the first is drafting as it is set now, or auto if
    nothing would be drafted."""
    can, of = hello.can, partial(msgspec.structs.replace, now, enabled=True)
    if not can.draft_length:
        return [of()]
    length = now.n_draft_max or (AUTO if can.auto else N_DRAFT_MAX_DEFAULT)
    drafter = AUTO if now.drafter == "none" else now.drafter
    found = [of(n_draft_max=length, drafter=drafter)]
    if info.drafter is not None:
        lengths = [one for one in _LENGTHS if one <= info.drafter.longest]
        for one in (*([AUTO] if can.auto else []), *lengths):
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
    """A heat that all have finished. `start` is the place of its first token in the reply."""

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
    """Its error is of 95%; None after too few heats."""
    is_drafted: bool = True
    """Whether it drafted at all, as far as the engine says."""
    fork: Fork | None = None

    @property
    def verdict(self) -> str:
        """faster, slower or same; plain if nothing was drafted; early after too few heats."""
        if self.gain.error is None:
            return "early"
        if not self.is_drafted:
            return "plain"
        if self.gain.is_faster:
            return "faster"
        return "slower" if self.gain.is_slower else "same"


@dataclass(frozen=True)
class Result:
    """What a race measured."""

    scores: tuple[Score, ...]
    """Plain decoding first."""
    tokens: int
    """Of the text that all wrote."""
    n_heats: int
    plain_error: float | None
    """The plain tokens per second are known to plus or minus this (95%)."""
    n_past: int

    @property
    def best(self) -> Score | None:
        """The contender that was fastest; None if there was no heat."""
        return max(self.scores[1:], key=lambda one: one.gain.speed_up, default=None)

    def note(self, speeds: Speeds, pair: Pair) -> None:
        """Keep what was measured of a pair."""
        best, now = self.best, time.time()
        error = best.gain.error if best else None
        if best is None or error is None or self.plain_error is None:
            return
        plain = self.scores[0].tokens_per_second
        speeds.note_plain(pair, PlainSpeed(plain, self.plain_error, self.n_past, now))
        if best.is_drafted:
            length = best.who.n_draft_max
            speeds.note_gain(pair, Gain(best.gain.speed_up, error, length, "chat", now))


class Race:
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
        self._goes_on = hello.can.goes_on
        limit = asked.terms.max_tokens or 2**31
        self.n_heats = HEATS if self._goes_on else _HEATS_OF_SERVER
        self.heat_tokens = min(HEAT_TOKENS if self._goes_on else _SERVER_TOKENS, limit)
        # Room for a whole draft behind the last token: it is stopped after it.
        spare = N_DRAFT_MAX_LIMIT + 1 if self._goes_on else 0
        self._most, self._limit = min(self.heat_tokens + spare, limit), limit
        self._engine, self._asked = engine, asked
        self._seed, self._changed = asked.terms.sampling.draw_seed(), changed
        self._begun: tuple[int, ...] = ()
        self._left: list[Speculation] = []
        self._request_id, self._is_full = 0, False

    def start(self) -> None:
        self._next()

    def stop(self) -> None:
        """Stop at once. The finished heats count."""
        if not self.is_over and not self.is_stopping:
            self.is_stopping = True
            self._engine.send(protocol.Cancel(id=self._request_id))

    @property
    def begins(self) -> bool:
        """Whether the running heat is at the beginning of the reply."""
        return not self._begun

    def result(self) -> Result:
        return result_of(self.heats, self.who)

    def _next(self) -> None:
        """The next leg, or the end."""
        if len(self.heats) == self.n_heats:
            self.is_over = True
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
            self.leg.terms.to_chat(self._asked.messages, self._begun), self._heard
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
                self.failure, self.is_over = event, True
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
        is_cut = end.finish_reason is FinishReason.CANCELLED and not self._is_full
        if self.is_stopping or is_cut or not tokens:
            self.is_over = True
            return
        if self._goes_on:
            ms = sum(round_.timings.total_ms for round_ in leg.rounds)
            tokens = leg.stats.tokens
        if self._is_full and (tokens < end.tokens or end.finish_reason is FinishReason.CANCELLED):
            end = replace(end, finish_reason=FinishReason.LENGTH, tokens=tokens)
        leg.finish(end, None if self._goes_on else stats)
        self.legs[self.running] = Leg(leg, tokens, ms)
        if not self._left:
            self._heat_ended()
        self._next()

    def _heat_ended(self) -> None:
        plain = self.legs[PLAINLY].recording
        self.heats.append(Heat(len(self._begun), self.legs))
        self.legs = {}
        assert plain.end is not None
        is_room = len(self._begun) + 2 * self.heat_tokens <= self._limit
        goes_on = self._goes_on and plain.end.finish_reason is FinishReason.LENGTH
        ids = plain.ids if goes_on and is_room else None
        self._begun = (*self._begun, *ids) if ids else ()


def result_of(heats: Sequence[Heat], who: Sequence[Speculation]) -> Result:
    """What these heats say of the contenders, of which the first is plain decoding."""
    plain = [heat.legs[PLAINLY] for heat in heats]
    tokens = sum(leg.tokens for leg in plain)
    speeds = [(float(leg.tokens), leg.ms / 1000.0) for leg in plain]
    middle = plain[len(plain) // 2].recording.n_past if plain else 0
    scores = tuple(_score(one, heats, tokens) for one in who) if heats else ()
    return Result(scores, tokens, len(heats), _error(speeds), middle)


def _score(who: Speculation, heats: Sequence[Heat], tokens: int) -> Score:
    times = [(heat.ms(PLAINLY), heat.ms(who)) for heat in heats]
    ms = sum(own for _, own in times)
    legs = [heat.legs[who].recording for heat in heats]
    forks = (_fork(heat, who) for heat in heats)
    return Score(
        who=who,
        tokens_per_second=per_second(tokens, ms) or 0.0,
        seconds=ms / 1000.0,
        gain=MeasuredGain(_ratio(times), _error(times)),
        is_drafted=any(leg.speculated or _is_unknown(leg) for leg in legs),
        fork=next(filter(None, forks), None),
    )


def _fork(heat: Heat, who: Speculation) -> Fork | None:
    fork = first_fork(heat.legs[who].recording, heat.legs[PLAINLY].recording)
    return replace(fork, index=heat.start + fork.index) if fork else None


def _is_unknown(leg: Recording) -> bool:
    """Whether the engine does not say what was drafted."""
    return any(token.origin is Origin.UNKNOWN for token in _tokens(leg))


def _ratio(values: Sequence[tuple[float, float]]) -> float:
    return sum(one for one, _ in values) / (sum(other for _, other in values) or 1.0)


def _error(values: Sequence[tuple[float, float]]) -> float | None:
    """How far the ratio of the sums may be off (95%), by the jackknife: how much it changes if one
    of the pairs is left out. None for too few."""
    n = len(values)
    if n < FEWEST_HEATS:
        return None
    left_out = [_ratio([*values[:i], *values[i + 1 :]]) for i in range(n)]
    mean = sum(left_out) / n
    spread = sqrt(sum((one - mean) ** 2 for one in left_out) * (n - 1) / n)
    return _T[min(n - FEWEST_HEATS, len(_T) - 1)] * spread


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
    one, other = ("".join(token.text for token in tokens) for tokens in (ours, theirs))
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


def _named(token: Token) -> str | int | None:
    return token.text or token.id

"""A comparison: several ways to draft write the same replies in turn, against plain decoding, until
it is certain whether that is faster, or time is up.

A heat is a short piece of a reply. In each heat every contender continues the same text, so that a
slow moment of the machine falls on all of them; what the first one, plain decoding, wrote is the
text of the next heat. A reply that ends, or repeats itself, begins again, with another seed if one
is set. A server that cannot continue a text writes replies from the beginning in each heat. With
several prompts, each has some heats in turn, fewer if its reply begins again.

Only generation is timed, from the second round of a heat up to the one that completes it: a draft
is never cut short because a heat ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import ceil, inf
from time import monotonic
from typing import Protocol

import msgspec

from eaglechat.chat.compared import Heat, Leg, Result, level_of, level_of_last
from eaglechat.chat.measured import Passages
from eaglechat.chat.recording import Recording, Terms
from eaglechat.hub.local.fingerprint import Witness, load
from eaglechat.links.base import Listener, Watcher
from eaglechat.wire import protocol
from eaglechat.wire.records import (
    N_DRAFT_MAX_LIMIT,
    NGRAM,
    FinishReason,
    Prefill,
    ReplyEnd,
    Round,
    SpeculationOff,
)
from eaglechat.wire.stats import SpeculationStats

HEAT_TOKENS = 20
_LEAST_SERVER_TOKENS = 128
FIRST_LOOK, _FIRST_LOOK_AT_SERVER = 8, 4
"""Heats before the first look at the results."""
_REPEATS_ALONE = 2
"""Of a contender that nothing is compared with."""
_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)


@dataclass(frozen=True)
class Asked:
    """Prompts, and what their replies are requested with."""

    prompts: Mapping[str, tuple[protocol.Message, ...]]
    """By their names."""
    terms: Terms
    heat_tokens: int = HEAT_TOKENS
    in_a_row: int = 1
    """Heats of a prompt before the next one, which has to be read first."""
    repeats: int | None = None
    """Passes over all prompts; None: until it can tell."""
    minutes: float | None = None
    """The longest time; None: that of two times the heats before the first look."""
    least_minutes: int = 2
    """If that time follows from the heats."""


class Engine(Protocol):
    """The part of a link that a chat and a comparison use."""

    @property
    def hello(self) -> protocol.Hello | None: ...
    def request(self, message: protocol.AnsweredRequest, listener: Listener) -> int: ...
    def send(self, message: protocol.Set | protocol.Cancel) -> None: ...
    def watch(self, watcher: Watcher) -> Callable[[], None]: ...


def contenders(
    now: protocol.Speculation, info: protocol.PairInfo, hello: protocol.Hello
) -> list[protocol.Speculation]:
    """Who can be compared with plain decoding; the first is drafting as it is set now, or auto if
    nothing would be drafted."""
    can, of = hello.can, partial(msgspec.structs.replace, now, enabled=True)
    if not can.draft_length:
        return [of(n_draft_max=now.n_draft_max or protocol.N_DRAFT_MAX_DEFAULT)]
    length = now.n_draft_max or (protocol.AUTO if can.own else protocol.N_DRAFT_MAX_DEFAULT)
    drafter = protocol.AUTO if now.drafter == "none" else now.drafter
    found = [of(n_draft_max=length, drafter=drafter)]
    if info.drafter is not None:
        lengths = [one for one in _LENGTHS if one <= info.drafter.longest]
        for one in (*([protocol.AUTO] if can.own else []), *lengths):
            found.append(of(n_draft_max=one, drafter=drafter))
    elif not now.ngram and can.own:
        found = []
    if can.own:
        kinds = [one.kind for one in info.drafters] if len(info.drafters) > 1 else []
        found += [of(n_draft_max=protocol.AUTO, drafter=one) for one in (NGRAM, *kinds)]
    return list(dict.fromkeys(found))


class Comparison:
    """Runs the heats on an engine, one request after the other."""

    def __init__(
        self,
        engine: Engine,
        hello: protocol.Hello,
        info: protocol.PairInfo,
        asked: Asked,
        who: Mapping[str, protocol.Speculation],
        *,
        changed: Callable[[], None],
    ) -> None:
        """`who` has the contenders by name; all continue what the first one writes. `changed` is
        called after each event."""
        self.hello, self.info, self.asked, self.who = hello, info, asked, who
        self._engine, self._changed = engine, changed
        self.heats: list[Heat] = []
        self.result: Result | None = None
        """None until it is over."""
        self._so_far = Result()
        self.others = 0.0
        """The share of the CPUs that other programs kept busy meanwhile; once it is over."""
        self.loads: list[float] = []
        """The load of the machine before and after."""
        self.is_stopping = False
        self.failure: protocol.Error | None = None
        self._goes_on = hello.can.own

        self.prompt = next(iter(asked.prompts))
        """That of the running heat, by its name."""
        self.written = ""
        """What all continue in it."""
        self.heat_tokens, self.in_a_row, first = asked.heat_tokens, asked.in_a_row, FIRST_LOOK
        if not self._goes_on:
            self.heat_tokens = max(self.heat_tokens * self.in_a_row, _LEAST_SERVER_TOKENS)
            self.in_a_row, first = 1, _FIRST_LOOK_AT_SERVER
        self._limit = asked.terms.max_tokens or 2**31
        self.heat_tokens = min(self.heat_tokens, self._limit)
        # As many heats of each prompt.
        each_pass = self.in_a_row * len(asked.prompts)
        self._look, self._looks_at = 0, ceil(first / each_pass)
        """The next look at the results, and the passes over the prompts after which it is due."""
        self._repeats = asked.repeats or (_REPEATS_ALONE if len(who) == 1 else None)
        self.minutes = asked.minutes or inf
        """It takes no longer than this."""
        if asked.minutes is None and self._repeats is None:
            # A slow model gets the time of two passes.
            tokens = 2 * self._looks_at * each_pass * self.heat_tokens * len(who)
            minutes = ceil(tokens * info.verify_ms.get(1, 0.0) / 60_000.0)
            self.minutes = max(asked.least_minutes, minutes)
        self._ends_at = 0.0
        self._prompts_over = 0
        """In all passes over them."""

        self.running = next(iter(who))
        """The contender that writes."""
        self.leg = Recording(asked.terms)
        """What it has written."""
        self.loading: protocol.Loading | None = None
        self.prefill: Prefill | None = None
        self._request_id, self._is_full = 0, False
        self._ended: Leg
        """The latest one that has ended."""
        self._course = self._heats()

    def start(self) -> None:
        self._ends_at, self._witness = monotonic() + 60.0 * self.minutes, Witness()
        self.loads.append(load())
        next(self._course)

    def stop(self) -> None:
        """Stop at once. The finished heats count."""
        if self.result is None and not self.is_stopping:
            self.is_stopping = True
            self._engine.send(protocol.Cancel(id=self._request_id))

    # What there is to see

    @property
    def seconds_left(self) -> float:
        return max(self._ends_at - monotonic(), 0.0)

    @property
    def share(self) -> float | None:
        """Of the passes that were asked for, the share that is over; None: until it can tell."""
        if self._repeats is None:
            return None
        return self._prompts_over / (self._repeats * len(self.asked.prompts))

    def so_far(self) -> Result:
        """What was measured, without a claim while it goes on."""
        if len(self._so_far.heats) < len(self.heats):
            self._so_far = self._measured(None)
        return self.result or self._so_far

    def _measured(self, level: float | None) -> Result:
        temperature = self.asked.terms.sampling.temperature
        return Result(tuple(self.heats), self.who, level, temperature)

    # The course of it

    def _heats(self) -> Iterator[bool]:
        """Goes on when the leg that it requested has ended. Yields True."""
        asked, base = self.asked, next(iter(self.who))
        passes = 0
        begun: dict[str, tuple[tuple[int, ...], str]] = {}
        """Tokens and text of the reply to each prompt that all continue."""
        while not self._is_enough(passes):
            for self.prompt in asked.prompts:
                for heat in count(1):
                    tokens, self.written = begun.pop(self.prompt, ((), ""))
                    # A heavy one may slow the next, so none always follows the same other one.
                    in_turn = [*self.who][:: 1 if len(self.heats) % 2 == 0 else -1]
                    legs = dict[str, Leg]()
                    for self.running in in_turn:
                        self._request(tokens)
                        yield True
                        legs[self.running] = self._ended
                    self.heats.append(Heat(self.prompt, legs, self.written))
                    plain = legs[base].recording
                    is_open = plain.end and plain.end.finish_reason is FinishReason.LENGTH
                    is_room = len(tokens) + 2 * self.heat_tokens <= self._limit
                    more = plain.ids if self._goes_on and is_open and is_room else None
                    text = (*tokens, *(more or ()))
                    # Drafts guess what repeats itself, which says nothing of other replies.
                    goes_on = bool(more) and not Passages(text).repeat
                    if goes_on:
                        begun[self.prompt] = text, self.written + legs[base].text
                    if heat == self.in_a_row or not goes_on:
                        break
                self._prompts_over += 1
            passes += 1

    def _is_enough(self, passes: int) -> bool:
        if self._repeats is not None:
            return passes >= self._repeats
        if passes < self._looks_at:
            return False
        result = self._measured(level_of(self._look))
        self._look, self._looks_at = self._look + 1, 2 * self._looks_at
        if result.is_certain:
            self._end(result)
        return result.is_certain

    def _request(self, begun: tuple[int, ...]) -> None:
        terms = self.asked.terms
        seed = terms.sampling.seed
        if seed is not None:
            seed = (seed + len(self.heats)) % (protocol.SEED_LIMIT + 1)
        # Room for a whole draft behind the last token: it is stopped after it.
        spare = N_DRAFT_MAX_LIMIT + 1 if self._goes_on else 0
        self.leg = Recording(
            msgspec.structs.replace(
                terms,
                sampling=msgspec.structs.replace(terms.sampling, seed=seed),
                speculation=self.who[self.running],
                max_tokens=min(self.heat_tokens + spare, self._limit),
                top=0,
            )
        )
        self._is_full, self.loading, self.prefill = False, None, None
        self._request_id = self._engine.request(
            self.leg.terms.to_chat(self.asked.prompts[self.prompt], begun), self._heard
        )

    def _heard(self, event: protocol.Answer) -> None:
        if self.result is not None or event.id != self._request_id:
            return
        match event:
            case protocol.Progress():
                self._see(event.step)
            case protocol.Done():
                self._leg_ended(event.end, event.stats)
            case protocol.Error():
                self.failure = event
                self._end()
        if not self.seconds_left:
            self.stop()
        self._changed()

    def _see(self, step: protocol.Step) -> None:
        match step:
            case protocol.Loading():
                self.loading = step
            case Prefill():
                self.prefill = step
            case Round() if not self._is_full:
                self.leg.add(step)
                if self._goes_on and self.leg.stats.tokens >= self.heat_tokens:
                    # Rounds that come before it stops are not counted.
                    self._is_full = True
                    self._engine.send(protocol.Cancel(id=self._request_id))
            case protocol.Settled():
                self.leg.settle(step.rounds)
            case SpeculationOff():
                self._engine.send(protocol.Cancel(id=self._request_id))
                self._fail(f"{self.prompt}, {self.running}: {step.reason}")

    def _leg_ended(self, end: ReplyEnd, stats: SpeculationStats) -> None:
        leg, tokens, ms = self.leg, end.tokens, end.timings.generation_ms
        is_cut = end.finish_reason is FinishReason.CANCELLED and not self._is_full
        if self.is_stopping or is_cut or not tokens:
            self._end()
            return
        if self._goes_on:
            # In the first round llama.cpp sets itself up for what the contender before did not do:
            # 2 to 4 ms that would be plain decoding's each time, in 20 tokens of 8 ms. A round that
            # measures plain decoding says nothing of drafting.
            rounds = leg.rounds[1:] or leg.rounds
            measured = [one for one in rounds if not one.is_plain_check] or rounds
            ms = sum(round_.timings.total_ms for round_ in measured)
            tokens = sum(len(round_.tokens) for round_ in measured)
        elif ms <= 0.0:
            self._fail(f"the reply to “{self.prompt}” came all at once, so its speed is not known")
            return
        written = leg.stats.tokens
        if self._is_full and (written < end.tokens or end.finish_reason is FinishReason.CANCELLED):
            end = msgspec.structs.replace(end, finish_reason=FinishReason.LENGTH, tokens=written)
        leg.finish(end, None if self._goes_on else stats)
        self._ended = Leg(leg, tokens, ms)
        if not next(self._course, False):
            self._end()

    def _end(self, result: Result | None = None) -> None:
        if self.result is None:
            self.result = result or self._measured(level_of_last(self._look))
            self.others = self._witness.others()
            self.loads.append(load())

    def _fail(self, why: str) -> None:
        self.failure = protocol.Error(id=self._request_id, code="compare", message=why)
        self._end()

"""A pair whose costs and acceptance are formulas, so controllers are tested without a clock.

The text is fixed before anybody decodes it: whether the draft guesses the token at a position is
settled by a draw that belongs to the position. Plain decoding, fixed lengths and the controller
thus write the same text, and their times compare.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from typing import NamedTuple

from eaglechat.engine.auto.controller import (
    CHAIN,
    TREE,
    Allowed,
    Arm,
    Controller,
    Plan,
    Seen,
    shapes_open,
)
from eaglechat.engine.auto.planner import PlainChecks
from eaglechat.engine.drafters import proposal as drafters
from eaglechat.engine.drafters.base import MOST_WAITING
from eaglechat.engine.drafters.proposal import Proposal
from eaglechat.wire.protocol import Shape, Speculation
from eaglechat.wire.records import (
    LAST_TOKEN,
    N_DRAFT_MAX_LIMIT,
    NGRAM,
    AutoDraft,
    DraftToken,
    Origin,
    Round,
    RoundTimings,
    Token,
    depths,
)

USUAL_WAITING = 2
"""Waiting rows whose taking in is part of the time of a draft; each further row costs
`catch_up_row`."""


class Guess(NamedTuple):
    """A drafted token."""

    right: bool
    """Whether this token, and all before it on the path, are what the target will write."""
    path: tuple[float, ...]
    """The draft's probabilities along the path, this token's last."""
    parent: int


class Begun(NamedTuple):
    """The first `n` tokens of a draft."""

    n: int
    n_right: int
    levels: int
    siblings: int = 0
    """Tokens that the draft decoded beside one for each level."""


class Fixed(NamedTuple):
    """A driver that drafts the same in every round; with `ngram`, what n-grams find comes first."""

    arm: Arm
    ngram: bool = False


Driver = Fixed | Controller


@dataclass(frozen=True)
class Simulated:
    """Times in milliseconds. `accepts(position, depth)` is the mean chance that the draft guesses
    the token at a text position, `depth` tokens deep in a draft."""

    verify: Callable[[int, int], float]
    """By batch width and context length."""
    accepts: Callable[[int, int], float]
    draft_step: float = 0.45
    draft_base: float = 0.0
    """The time of a draft beside its steps."""
    longest: int = N_DRAFT_MAX_LIMIT
    """The most tokens of a draft."""
    in_one_pass: bool = False
    """Whether a draft that ends early takes as many steps as the longest it may be."""
    sibling: float = 0.25
    """The time of one more token on a level of a tree, as a share of `draft_step`."""
    siblings: tuple[float, ...] = (0.2, 0.12, 0.07)
    """When the draft's likeliest token is wrong, how often the second, third and fourth likeliest
    are right."""
    shape: Shape = "auto"
    has_draft: bool = True
    catch_up_row: float = 0.05
    noise: float = 0.03
    tail: float = 0.0
    """The share of times that other work on the machine makes three times as long."""
    n_prompt: int = 40
    n_waiting: int | None = None
    """Rows of the prompt that the draft has not taken in. None: only the last row waits."""
    seed: int = 1
    copies: Callable[[int], int] | None = None
    """By text position, how many tokens from there on repeat earlier text. None: there are no
    n-grams."""

    def allowed(self, n_most: int, n_min: int) -> Allowed:
        shapes = shapes_open(self.shape, grows_trees=True)
        return Allowed(n_most * self.has_draft, n_min, shapes)

    @property
    def waits_first(self) -> int:
        """Rows that wait when the reply begins."""
        return 1 if self.n_waiting is None else min(self.n_waiting, MOST_WAITING)

    def draft_ms(self, n_wanted: int, drafted: Begun, waiting: int) -> float:
        """Milliseconds of a draft of `n_wanted` tokens that ends as `drafted`, behind so many
        waiting rows."""
        # What is beyond the last was looked at to end the draft there.
        steps = n_wanted if self.in_one_pass else drafted.levels + (drafted.n < n_wanted)
        further = max(0, waiting - USUAL_WAITING)
        fixed = self.draft_base + further * self.catch_up_row
        return fixed + self.draft_step * (steps + self.sibling * drafted.siblings)


@lru_cache(maxsize=8)
def text_of(pair: Simulated) -> Text:
    return Text(pair)


_drawn_once = lru_cache(maxsize=50_000)


class Text:
    """The text that a pair writes, as far as it is guessed: the same whoever drives the pair."""

    def __init__(self, pair: Simulated) -> None:
        self._pair = pair

    @_drawn_once
    def found(self, position: int) -> Proposal:
        """What n-grams find for a position."""
        copies = self._pair.copies
        if copies is None:
            return Proposal()
        rng, right = random.Random(f"{self._pair.seed}/n/{position}"), copies(position)
        if right == 0 and rng.random() < 0.7:
            return Proposal()
        sure = 0.92 if right else 0.67
        # A match by chance is a short one, and goes on a little.
        right = right or (rng.random() < 0.3) + (rng.random() < 0.1)
        places = range(N_DRAFT_MAX_LIMIT)
        ids = [position + place if place < right else -1 - place for place in places]
        return Proposal.chain([drafters.Guess(id, sure, sure) for id in ids], NGRAM)

    @_drawn_once
    def _likeliest(self, position: int, depth: int) -> list[tuple[bool, float]]:
        """The draft's likeliest tokens for a text position, `depth` tokens deep in a draft: whether
        each is right, and the probability that the draft gives it."""
        pair, rng = self._pair, random.Random(f"{self._pair.seed}/{position}")
        luck, mean = rng.random(), min(max(pair.accepts(position, depth), 0.002), 0.998)
        truth = rng.betavariate(1.5 * mean, 1.5 * (1.0 - mean))
        # Drafts are sure of themselves.
        likeliest, sureness, below = [(luck < truth, truth**0.7)], 1.0 - truth**0.7, truth
        for part in pair.siblings:
            share = (1.0 - truth) * part
            likeliest.append((below <= luck < below + share, sureness * part))
            below += share
        return likeliest

    @_drawn_once
    def chain(self, position: int, n: int) -> list[Guess]:
        if n == 0:
            return []
        before = self.chain(position, n - 1)
        right, path, _ = before[-1] if before else (True, (), LAST_TOKEN)
        hit, probability = self._likeliest(position + n - 1, n - 1)[0]
        return [*before, Guess(right and hit, (*path, probability), n - 2)]

    @_drawn_once
    def tree(self, position: int, room: int) -> list[Guess]:
        """A tree of `room` tokens, likeliest first; a smaller tree is the beginning of it."""
        tree: list[Guess] = []
        frontier: list[tuple[float, int, bool, float, int]] = []
        right, path, chance = True, (), 1.0
        for index in range(LAST_TOKEN, room - 1):
            likeliest = self._likeliest(position + len(path), len(path))
            for rank, (hit, probability) in enumerate(likeliest):
                child = -chance * probability, 10 * index + rank, right and hit, probability, index
                heappush(frontier, child)
            chance, _, right, probability, parent = heappop(frontier)
            above = tree[parent].path if parent != LAST_TOKEN else ()
            chance, path = -chance, (*above, probability)
            tree.append(Guess(right, path, parent))
        return tree

    @_drawn_once
    def begun(self, position: int, shape: int, room: int) -> list[Begun]:
        """The beginnings of a draft with room for so many tokens, by their length from 0 on."""
        if shape == CHAIN:
            hits = (self._likeliest(position + n, n)[0][0] for n in range(room))
            n_right = next((n for n, hit in enumerate(hits) if not hit), room)
            return [Begun(n, min(n, n_right), n) for n in range(room + 1)]
        begun, decoded = [Begun(0, 0, 0)], {LAST_TOKEN}
        for n, guess in enumerate(self.tree(position, room), 1):
            decoded.add(guess.parent)
            levels = max(begun[-1].levels, len(guess.path))
            siblings = max(0, len(decoded) - levels)
            begun.append(Begun(n, begun[-1].n_right + guess.right, levels, siblings))
        return begun


@dataclass
class Reply:
    """One reply. Its times are without noise."""

    tokens: int = 0
    ms: float = 0.0
    plain_ms: float = 0.0
    dearest_loss_ms: float = 0.0
    """How much longer than a plain round its most expensive round took."""
    states: list[AutoDraft] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    """With noise, and on the machine as it was at that time; of tokens without text."""
    took_ms: float = 0.0
    """The time of `rounds`."""
    plainly_ms: float = 0.0
    """What plain decoding would have taken on that machine at that time."""
    speed_ups: list[float] = field(default_factory=list)
    """After each round, how many times as fast as plain decoding the reply was."""


def write(
    pair: Simulated,
    n_tokens: int,
    driver: Driver,
    *,
    n_min: int = 0,
    checks: PlainChecks | None = None,
    slowness: Callable[[float], float] = lambda _ms: 1.0,
) -> Reply:
    """Write `n_tokens` with a fixed draft or a controller. As in the loop, a draft shorter than
    `n_min` is dropped. `slowness` says how many times as long all takes, by the time since the
    reply began."""
    reply, text, clock = Reply(), text_of(pair), random.Random(pair.seed)
    mean_delay = math.exp(pair.noise**2 / 2.0) * (1.0 + 2.0 * pair.tail)
    controller = driver if isinstance(driver, Controller) else None
    if controller is not None:
        controller.new_reply()
    waiting = pair.waits_first
    while reply.tokens < n_tokens:
        n_past = pair.n_prompt + reply.tokens
        room = min(N_DRAFT_MAX_LIMIT, n_tokens - reply.tokens - 1)
        found, n_most = text.found(reply.tokens).first(room), min(room, pair.longest)
        if checks and checks.is_due(_by_hand(driver)):
            plan = controller.plain_check() if controller else Plan(0, is_plain_check=True)
        elif controller is not None:
            waiting = _catch_up(pair, controller, waiting, reply)
            allowed = pair.allowed(n_most, n_min)
            plan = controller.choose(n_past, waiting, allowed)
            assert allowed.includes(plan)
            plan = (controller.worth_taking(plan, found) if found else None) or plan
        else:
            plan = _fixed(driver, n_most, found, pair.has_draft)
        guesses, draft_ms = _draft(text, reply.tokens, n_most, plan), 0.0
        drafts = plan.n > 0 and not plan.taken
        if drafts:
            begun = text.begun(reply.tokens, plan.shape, n_most)[len(guesses)]
            draft_ms = pair.draft_ms(plan.n, begun, waiting)
        if len(guesses) < n_min:
            guesses = []
        verify_ms = pair.verify(len(guesses) + 1, n_past)
        slower = slowness(reply.took_ms)
        draft_delay, verify_delay = slower * _delay(pair, clock), slower * _delay(pair, clock)
        took_ms = draft_ms * draft_delay + verify_ms * verify_delay
        round_ = round_of(plan, reply.tokens, n_past, guesses, ms=took_ms, by_hand=_by_hand(driver))
        accepted = round_.n_accepted
        if controller is not None:
            times = waiting, draft_ms * draft_delay
            controller.observe(Seen(plan, round_, proposal_of(guesses), found, *times))
            reply.states.append(plan.state)
        plain_ms = pair.verify(1, n_past)
        reply.dearest_loss_ms = max(reply.dearest_loss_ms, verify_ms + draft_ms - plain_ms)
        waiting = accepted + 1 if drafts else waiting + accepted + 1
        reply.rounds.append(round_)
        if checks is not None:
            checks.add(reply.rounds[-1])
        reply.took_ms += took_ms
        reply.plainly_ms += (accepted + 1) * plain_ms * slower * mean_delay
        reply.speed_ups.append(reply.plainly_ms / reply.took_ms)
        reply.tokens += accepted + 1
        reply.ms += verify_ms + draft_ms
        reply.plain_ms += (accepted + 1) * plain_ms
    return reply


def _catch_up(pair: Simulated, controller: Controller, waiting: int, reply: Reply) -> int:
    """The draft takes in the rows that plain rounds have left, if the controller affords that.
    Returns how many wait then."""
    if not controller.affords_rows or waiting <= MOST_WAITING:
        return waiting
    ms = (waiting - 1) * pair.catch_up_row
    controller.observe_rows(waiting - 1, ms)
    reply.ms += ms
    reply.took_ms += ms
    return 1


def fixed_ms(pair: Simulated, n_tokens: int, fixed: Fixed) -> float:
    """`Reply.ms` of a reply that drafts the same in every round, in a fraction of the time."""
    text, waiting, at, ms = text_of(pair), pair.waits_first, 0, 0.0
    while at < n_tokens:
        room = min(N_DRAFT_MAX_LIMIT, n_tokens - at - 1)
        taken = text.found(at).first(min(fixed.arm.n, room)) if fixed.ngram else Proposal()
        n = len(taken) or min(fixed.arm.n, room, pair.longest) * pair.has_draft
        ms += pair.verify(n + 1, pair.n_prompt + at)
        if n and not taken:
            begun = text.begun(at, fixed.arm.shape, min(room, pair.longest))[n]
            ms += pair.draft_ms(n, begun, waiting)
            n_written = begun.n_right + 1
            waiting = n_written
        else:
            n_written = _n_right(taken) + 1
            waiting = min(waiting + n_written, MOST_WAITING)
        at += n_written
    return ms


def round_of(
    plan: Plan,
    position: int,
    n_past: int,
    guesses: Sequence[Guess],
    *,
    ms: float,
    by_hand: int | None = None,
) -> Round:
    """The record of a round at a text position. The token at a position has its number; a wrong
    guess has a negative one."""
    n_accepted = sum(guess.right for guess in guesses)
    parents = [guess.parent for guess in guesses]
    path = [index for index, guess in enumerate(guesses) if guess.right]
    at = zip(guesses, depths(parents), strict=True)
    return Round(
        index=0,
        n_draft_max=plan.n if by_hand is None else by_hand,
        drafted=tuple(
            DraftToken(
                position + depth - 1 if guess.right else -1 - index,
                "",
                guess.path[-1] if guess.path else 1.0,
                guess.parent,
            )
            for index, (guess, depth) in enumerate(at)
        ),
        n_tested=n_accepted + ((path[-1] if path else LAST_TOKEN) in parents),
        n_accepted=n_accepted,
        tokens=tuple(
            Token(position + index, "", Origin.ACCEPTED if guesses else Origin.PLAIN)
            for index in range(n_accepted + 1)
        ),
        n_past=n_past + 1 + n_accepted,
        timings=RoundTimings(None, None, None, None, ms),
        auto=plan.state,
        is_plain_check=plan.is_plain_check,
    )


def proposal_of(guesses: Sequence[Guess]) -> Proposal:
    """What is learnt from of a draft."""
    sureness = [guess.path[-1] if guess.path else 1.0 for guess in guesses]
    return Proposal([drafters.Guess(-1, one, one) for one in sureness])


def _by_hand(driver: Driver) -> int | None:
    """The draft length that is set by hand; None for auto."""
    return None if isinstance(driver, Controller) else driver.arm.n


def _fixed(driver: Fixed, n_most: int, found: Proposal, has_draft: bool) -> Plan:
    if driver.ngram and found:
        taken = found.first(driver.arm.n)
        return Plan(len(taken), taken=taken)
    return Plan(min(driver.arm.n, n_most) * has_draft, driver.arm.shape)


def _draft(text: Text, position: int, room: int, plan: Plan) -> list[Guess]:
    """The guesses of a round, none beyond the end of the text."""
    if plan.taken:
        n_right = _n_right(plan.taken)
        return [Guess(place < n_right, (), place - 1) for place in range(plan.n)]
    of_shape = text.tree(position, room) if plan.shape == TREE else text.chain(position, plan.n)
    guesses: list[Guess] = []
    limits = plan.limits(Speculation())
    for guess in of_shape[: plan.n]:
        if not limits.pays(guess.path, len(guesses)):
            break
        guesses.append(guess)
    return guesses


def _n_right(found: Proposal) -> int:
    """How many of these guesses are right, before the first wrong one."""
    return sum(id >= 0 for id in found.ids)


def _delay(pair: Simulated, clock: random.Random) -> float:
    factor = clock.lognormvariate(0.0, pair.noise)
    return factor * 3.0 if clock.random() < pair.tail else factor

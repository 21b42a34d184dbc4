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
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from eaglechat.engine.auto.controller import Controller
from eaglechat.engine.auto.plain_checks import PlainChecks
from eaglechat.engine.auto.plan import (
    CHAIN,
    TREE,
    Allowed,
    Arm,
    Plan,
    Seen,
    shapes_open,
)
from eaglechat.engine.drafters import base as drafters
from eaglechat.engine.drafters.base import MOST_WAITING, Proposal
from eaglechat.wire.protocol import Shape
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


class Fixed(NamedTuple):
    """A driver that drafts the same in every round; with `ngram`, what n-grams find comes first."""

    arm: Arm
    ngram: bool = False


Driver = int | Fixed | Controller
"""A number n stands for chains of n tokens."""


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

    def found(self, position: int) -> list[tuple[bool, float]]:
        """What n-grams find for a position: which tokens are right, and their probabilities."""
        if self.copies is None:
            return []
        rng, right = random.Random(f"{self.seed}/n/{position}"), self.copies(position)
        if right == 0 and rng.random() < 0.7:
            return []
        # A match by chance is a short one, and goes on a little.
        right = right or (rng.random() < 0.3) + (rng.random() < 0.1)
        sure = 0.92 if self.copies(position) else 0.67
        return [(place < right, sure) for place in range(N_DRAFT_MAX_LIMIT)]

    @lru_cache(maxsize=100_000)  # noqa: B019 - a few pairs, which live as long as the tests
    def _draw(self, position: int, depth: int) -> tuple[float, float]:
        """A random number that decides the guesses at a position, and the chance that the likeliest
        guess is right."""
        rng = random.Random(f"{self.seed}/{position}")
        luck, mean = rng.random(), min(max(self.accepts(position, depth), 0.002), 0.998)
        return luck, rng.betavariate(1.5 * mean, 1.5 * (1.0 - mean))

    def guess(self, position: int, depth: int) -> tuple[bool, float]:
        """Whether the draft guesses right, and the probability it gives its guess."""
        luck, truth = self._draw(position, depth)
        # Drafts are sure of themselves.
        return luck < truth, truth**0.7

    def chain(self, position: int, n: int) -> list[Guess]:
        guesses: list[Guess] = []
        right, path = True, ()
        for depth in range(n):
            hit, probability = self.guess(position + depth, depth)
            right, path = right and hit, (*path, probability)
            guesses.append(Guess(right, path, depth - 1))
        return guesses

    @lru_cache(maxsize=100_000)  # noqa: B019
    def tree(self, position: int, room: int) -> list[Guess]:
        """A tree of `room` tokens, likeliest first; a smaller tree is the beginning of it."""
        tree: list[Guess] = []
        frontier = self._children(position, 0, Guess(True, (), -1), 1.0, -1)
        heapify(frontier)
        while len(tree) < room:
            chance, _, guess = heappop(frontier)
            depth = len(guess.path)
            for child in self._children(position + depth, depth, guess, -chance, len(tree)):
                heappush(frontier, child)
            tree.append(guess)
        return tree

    def _children(
        self, position: int, depth: int, parent: Guess, chance: float, index: int
    ) -> list[tuple[float, int, Guess]]:
        luck, truth = self._draw(position, depth)
        first = truth**0.7
        children = []
        threshold = 0.0
        shares = [(truth, first), *((1 - truth, 1 - first) for _ in self.siblings)]
        for rank, (share, probability) in enumerate(shares):
            part = self.siblings[rank - 1] if rank else 1.0
            right = parent.right and threshold <= luck < threshold + share * part
            threshold += share * part
            guess = Guess(right, (*parent.path, probability * part), index)
            children.append((-chance * probability * part, 10 * index + rank, guess))
        return children


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

    @property
    def speed(self) -> float:
        return self.tokens / self.ms


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
    reply, clock = Reply(), random.Random(pair.seed)
    mean_delay = math.exp(pair.noise**2 / 2.0) * (1.0 + 2.0 * pair.tail)
    controller = driver if isinstance(driver, Controller) else None
    if controller is not None:
        controller.new_reply()
    waiting = 1 if pair.n_waiting is None else min(pair.n_waiting, MOST_WAITING)
    while reply.tokens < n_tokens:
        n_past = pair.n_prompt + reply.tokens
        room = min(N_DRAFT_MAX_LIMIT, n_tokens - reply.tokens - 1)
        found, n_most = pair.found(reply.tokens)[:room], min(room, pair.longest)
        looked_up = _proposal(found, reply.tokens)
        if checks and checks.is_due(_by_hand(driver)):
            plan = controller.plain_check() if controller else Plan(0, is_plain_check=True)
        elif controller is not None:
            allowed = pair.allowed(n_most, n_min)
            plan = controller.choose(n_past, waiting, allowed)
            assert plan.arm in allowed.arms
            plan = (controller.worth_taking(plan, looked_up) if found else None) or plan
        else:
            plan = _fixed(driver, n_most, looked_up, pair.has_draft)
        guesses, draft_ms = _draft(pair, reply.tokens, n_most, plan, found)
        if len(guesses) < n_min:
            guesses = []
        verify_ms = pair.verify(len(guesses) + 1, n_past)
        drafts = plan.n > 0 and not plan.taken
        if drafts:
            draft_ms += max(0, waiting - USUAL_WAITING) * pair.catch_up_row + pair.draft_base
        slower = slowness(reply.took_ms)
        draft_delay, verify_delay = slower * _delay(pair, clock), slower * _delay(pair, clock)
        took_ms = draft_ms * draft_delay + verify_ms * verify_delay
        round_ = round_of(plan, reply.tokens, n_past, guesses, ms=took_ms, by_hand=_by_hand(driver))
        accepted = round_.n_accepted
        if controller is not None:
            proposal = proposal_of(guesses)
            drafted_ms = draft_ms * draft_delay
            controller.observe(Seen(plan, round_, proposal, looked_up, waiting, drafted_ms))
            reply.states.append(plan.state)
        plain_ms = pair.verify(1, n_past)
        reply.dearest_loss_ms = max(reply.dearest_loss_ms, verify_ms + draft_ms - plain_ms)
        waiting = accepted + 1 if drafts else min(waiting + accepted + 1, MOST_WAITING)
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
    return Proposal(sureness=[guess.path[-1] if guess.path else 1.0 for guess in guesses])


def _proposal(found: Sequence[tuple[bool, float]], position: int) -> Proposal:
    ids = [position + place if hit else -1 - place for place, (hit, _) in enumerate(found)]
    probabilities = [probability for _, probability in found]
    return Proposal.of([*map(drafters.Guess, ids, probabilities, probabilities)], NGRAM)


def _by_hand(driver: Driver) -> int | None:
    """The draft length that is set by hand; None for auto."""
    if isinstance(driver, Controller):
        return None
    return driver if isinstance(driver, int) else driver.arm.n


def _fixed(driver: int | Fixed, n_most: int, found: Proposal, has_draft: bool) -> Plan:
    driver = Fixed(Arm(CHAIN, driver)) if isinstance(driver, int) else driver
    if driver.ngram and found:
        taken = found.first(driver.arm.n)
        return Plan(len(taken), taken=taken)
    return Plan(min(driver.arm.n, n_most) * has_draft, driver.arm.shape)


def _right(guesses: Sequence[tuple[bool, float]]) -> int:
    """How many guesses are right before the first wrong one."""
    return next((i for i, (hit, _) in enumerate(guesses) if not hit), len(guesses))


def _draft(
    pair: Simulated,
    position: int,
    room: int,
    plan: Plan,
    found: Sequence[tuple[bool, float]],
) -> tuple[list[Guess], float]:
    """The guesses of a round, none beyond the end of the text, and their drafting time."""
    if plan.taken:
        n_right = _right(found)
        return [Guess(i < n_right, (), i - 1) for i in range(plan.n)], 0.0
    is_tree = plan.shape == TREE
    drafted = pair.tree(position, room) if is_tree else pair.chain(position, plan.n)
    guesses: list[Guess] = []
    for guess in drafted[: plan.n]:
        if plan.worth and not plan.keeps(guess.path, len(guesses)):
            break
        guesses.append(guess)
    levels = max((len(guess.path) for guess in guesses), default=0)
    # What is beyond the last was looked at to end the draft there.
    steps = plan.n if pair.in_one_pass else levels + (len(guesses) < plan.n)
    n_decoded = len({guess.parent for guess in guesses} - {-1})
    siblings = max(0, n_decoded - levels + 1) if is_tree else 0
    return guesses, pair.draft_step * (steps + pair.sibling * siblings)


def _delay(pair: Simulated, clock: random.Random) -> float:
    factor = clock.lognormvariate(0.0, pair.noise)
    return factor * 3.0 if clock.random() < pair.tail else factor

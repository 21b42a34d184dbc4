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
from eaglechat.engine.auto.draft_plan import (
    CHAIN,
    TREE,
    Allowed,
    Arm,
    DraftPlan,
    Observation,
    shapes_open,
)
from eaglechat.engine.drafters.base import MOST_WAITING
from eaglechat.engine.generation.plain_checks import PlainChecks
from eaglechat.wire.protocol import Shape
from eaglechat.wire.records import (
    N_DRAFT_MAX_LIMIT,
    AutoDraft,
    AutoReason,
    DraftToken,
    Origin,
    Round,
    RoundTimings,
    Token,
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
    """Rows of the prompt that the draft has not taken in. None: only the last row waits if the
    driver means to draft, otherwise all do."""
    seed: int = 1
    copies: Callable[[int], int] | None = None
    """By text position, how many tokens from there on repeat earlier text. None: there are no
    n-grams."""

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
    waiting = _waiting_at_first(pair, driver)
    while reply.tokens < n_tokens:
        n_past = pair.n_prompt + reply.tokens
        room = min(N_DRAFT_MAX_LIMIT, n_tokens - reply.tokens - 1)
        found, n_most = pair.found(reply.tokens)[:room], min(room, pair.longest)
        is_check = bool(checks and checks.is_due(_by_hand(driver)))
        if is_check:
            plan = controller.plain_check() if controller else DraftPlan(0)
        elif controller is not None:
            shapes = shapes_open(pair.shape, grows_trees=True)
            allowed = Allowed(n_most * pair.has_draft, n_min, shapes)
            plan = controller.choose(n_past, waiting, allowed)
            assert plan.arm in allowed.arms
            probabilities = [probability for _, probability in found]
            plan = (controller.worth_taking(plan, probabilities) if found else None) or plan
        else:
            plan = _fixed(driver, n_most, len(found), pair.has_draft)
        guesses, draft_ms = _draft(pair, reply.tokens, n_most, plan, found)
        if len(guesses) < n_min:
            guesses = []
        path = tuple(index for index, guess in enumerate(guesses) if guess.right)
        accepted = len(path)
        has_more = any(guess.parent == (path[-1] if path else -1) for guess in guesses)
        verify_ms = pair.verify(len(guesses) + 1, n_past)
        drafts = plan.n > 0 and not plan.is_looked_up
        if drafts:
            draft_ms += max(0, waiting - USUAL_WAITING) * pair.catch_up_row + pair.draft_base
        slower = slowness(reply.took_ms)
        draft_delay, verify_delay = slower * _delay(pair, clock), slower * _delay(pair, clock)
        if controller is not None:
            controller.observe(
                plan,
                Observation(
                    n_past=n_past,
                    n_waiting=waiting,
                    probabilities=tuple(guess.path[-1] if guess.path else 1.0 for guess in guesses),
                    parents=tuple(guess.parent for guess in guesses),
                    path=path,
                    n_tested=accepted + has_more,
                    n_tokens=accepted + 1,
                    draft_ms=draft_ms * draft_delay,
                    verify_ms=verify_ms * verify_delay,
                    found=tuple(probability for _, probability in found),
                    n_right=min(_right(found), accepted + 1),
                ),
            )
            reply.states.append(plan.state)
        plain_ms = pair.verify(1, n_past)
        reply.dearest_loss_ms = max(reply.dearest_loss_ms, verify_ms + draft_ms - plain_ms)
        waiting = accepted + 1 if drafts else min(waiting + accepted + 1, MOST_WAITING)
        took = (accepted + 1, draft_ms * draft_delay + verify_ms * verify_delay)
        reply.rounds.append(_round(plan, _by_hand(driver), len(guesses), *took, is_check=is_check))
        if checks is not None:
            checks.add(reply.rounds[-1])
        reply.took_ms += took[1]
        reply.plainly_ms += (accepted + 1) * plain_ms * slower * mean_delay
        reply.tokens += accepted + 1
        reply.ms += verify_ms + draft_ms
        reply.plain_ms += (accepted + 1) * plain_ms
    return reply


def _round(
    plan: DraftPlan,
    by_hand: int | None,
    n_drafted: int,
    n_tokens: int,
    ms: float,
    *,
    is_check: bool,
) -> Round:
    is_autos = plan.state is not None and plan.state.reason is AutoReason.PLAIN_CHECK
    return Round(
        index=0,
        n_draft_max=plan.n if by_hand is None else by_hand,
        drafted=(DraftToken(0, "", 1.0),) * n_drafted,
        n_tested=0,
        n_accepted=n_tokens - 1,
        tokens=(Token(0, "", Origin.ACCEPTED if n_drafted else Origin.PLAIN),) * n_tokens,
        n_past=0,
        timings=RoundTimings(None, None, None, None, ms),
        auto=plan.state,
        is_plain_check=is_check or is_autos,
    )


def _by_hand(driver: Driver) -> int | None:
    """The draft length that is set by hand; None for auto."""
    if isinstance(driver, Controller):
        return None
    return driver if isinstance(driver, int) else driver.arm.n


def _fixed(driver: int | Fixed, n_most: int, n_found: int, has_draft: bool) -> DraftPlan:
    driver = Fixed(Arm(CHAIN, driver)) if isinstance(driver, int) else driver
    if driver.ngram and n_found:
        return DraftPlan(min(driver.arm.n, n_found), is_looked_up=True)
    return DraftPlan(min(driver.arm.n, n_most) * has_draft, driver.arm.shape)


def _right(guesses: Sequence[tuple[bool, float]]) -> int:
    """How many guesses are right before the first wrong one."""
    return next((i for i, (hit, _) in enumerate(guesses) if not hit), len(guesses))


def _waiting_at_first(pair: Simulated, driver: Driver) -> int:
    if pair.n_waiting is not None:
        return min(pair.n_waiting, MOST_WAITING)
    if isinstance(driver, Controller):
        shapes = shapes_open(pair.shape, grows_trees=True)
        will_draft = driver.expects_to_draft(pair.n_prompt, shapes)
    else:
        will_draft = driver != 0
    return 1 if will_draft else min(pair.n_prompt, MOST_WAITING)


def _draft(
    pair: Simulated,
    position: int,
    room: int,
    plan: DraftPlan,
    found: Sequence[tuple[bool, float]],
) -> tuple[list[Guess], float]:
    """The guesses of a round, none beyond the end of the text, and their drafting time."""
    if plan.is_looked_up:
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

"""A pair whose costs and acceptance are formulas: what a controller is judged on, without a clock.

The text is fixed before anybody decodes it: whether the draft guesses the token at a position is
settled by a draw that belongs to the position. Plain decoding, fixed lengths and the controller
thus write the same text, and their times compare.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from eaglechat.engine.auto.controller import Controller
from eaglechat.engine.auto.draft_plan import DraftPlan, Observation
from eaglechat.engine.drafters.base import MOST_CAUGHT_UP
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, AutoDraft

USUAL_WAITING = 2
"""Rows whose taking in is part of a draft's time; a row beyond them costs a row of a catch-up."""


@dataclass(frozen=True)
class Simulated:
    """Times in milliseconds. `accepts(position, depth)` is the mean of P(the token at a text
    position is guessed | the `depth` before it were)."""

    verify: Callable[[int, int], float]
    """By batch width and context length."""
    accepts: Callable[[int, int], float]
    draft_step: float = 0.45
    draft_base: float = 0.0
    """What drafting takes beside its steps."""
    catch_up_row: float = 0.05
    noise: float = 0.03
    tail: float = 0.0
    """Share of times that something else on the machine makes three times longer."""
    n_prompt: int = 40
    n_waiting: int | None = None
    """Rows of the prompt that the draft has not taken in; where None, all but the last are taken in
    while the prompt is read if the driver means to draft, and none if not."""
    seed: int = 1
    copies: Callable[[int], int] | None = None
    """By text position, how many tokens from there on repeat what stood before; without one,
    nothing is looked up."""

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
    def guess(self, position: int, depth: int) -> tuple[bool, float]:
        """Whether the draft guesses right, and the probability it gives its guess."""
        rng = random.Random(f"{self.seed}/{position}")
        luck, mean = rng.random(), min(max(self.accepts(position, depth), 0.002), 0.998)
        truth = rng.betavariate(1.5 * mean, 1.5 * (1.0 - mean))
        # Drafts are sure of themselves.
        return luck < truth, truth**0.7


@dataclass
class Reply:
    """One reply; times are what it took without noise."""

    tokens: int = 0
    ms: float = 0.0
    plain_ms: float = 0.0
    dearest_loss_ms: float = 0.0
    """The most that any round of it took longer than a plain one."""
    states: list[AutoDraft] = field(default_factory=list)

    @property
    def speed(self) -> float:
        return self.tokens / self.ms


def write(pair: Simulated, n_tokens: int, driver: int | Controller, *, n_min: int = 0) -> Reply:
    """Decode `n_tokens` with a fixed length or with a controller; a draft shorter than `n_min` is
    thrown away, as the loop does."""
    reply, clock = Reply(), random.Random(pair.seed)
    if isinstance(driver, Controller):
        driver.new_reply()
    waiting = _waiting_at_first(pair, driver)
    while reply.tokens < n_tokens:
        n_past = pair.n_prompt + reply.tokens
        n_most = min(N_DRAFT_MAX_LIMIT, n_tokens - reply.tokens - 1)
        plan = None if isinstance(driver, int) else driver.choose(n_past, n_most, waiting, n_min)
        found = [] if plan is None else pair.found(reply.tokens)[:n_most]
        instead = driver.worth_taking(plan, [p for _, p in found]) if found else None
        plan = instead or plan
        n = min(driver, n_most) if isinstance(driver, int) else plan.n
        assert 0 <= n <= n_most
        guesses, steps = _draft(pair, reply.tokens, n, plan)
        if instead is not None:
            guesses, steps, n = found[:n], 0, 0
        if len(guesses) < n_min:
            guesses = []
        hits = [hit for hit, _ in guesses]
        accepted = _right(guesses)
        verify_ms = pair.verify(len(guesses) + 1, n_past)
        catch_up_ms = max(0, waiting - USUAL_WAITING) * pair.catch_up_row
        draft_ms = steps * pair.draft_step + (catch_up_ms + pair.draft_base if n else 0.0)
        draft_delay, verify_delay = _delay(pair, clock), _delay(pair, clock)
        if plan is not None:
            driver.observe(
                plan,
                Observation(
                    n_past=n_past,
                    n_waiting=waiting,
                    probabilities=tuple(probability for _, probability in guesses),
                    n_tested=min(accepted + 1, len(hits)),
                    n_accepted=accepted,
                    n_tokens=accepted + 1,
                    draft_ms=draft_ms * draft_delay,
                    verify_ms=verify_ms * verify_delay,
                    found=tuple(probability for _, probability in found),
                    n_right=min(_right(found), accepted + 1),
                ),
            )
            reply.states.append(plan.state)
        loss_ms = verify_ms + draft_ms - pair.verify(1, n_past)
        reply.dearest_loss_ms = max(reply.dearest_loss_ms, loss_ms)
        waiting = accepted + 1 if n else min(waiting + accepted + 1, MOST_CAUGHT_UP)
        reply.tokens += accepted + 1
        reply.ms += verify_ms + draft_ms
        reply.plain_ms += (accepted + 1) * pair.verify(1, n_past)
    return reply


def _right(guesses: Sequence[tuple[bool, float]]) -> int:
    """How many are right, from the first on."""
    return next((i for i, (hit, _) in enumerate(guesses) if not hit), len(guesses))


def _waiting_at_first(pair: Simulated, driver: int | Controller) -> int:
    if pair.n_waiting is not None:
        return min(pair.n_waiting, MOST_CAUGHT_UP)
    will_draft = driver > 0 if isinstance(driver, int) else driver.expects_to_draft(pair.n_prompt)
    return 1 if will_draft else min(pair.n_prompt, MOST_CAUGHT_UP)


def _draft(
    pair: Simulated, position: int, n: int, plan: DraftPlan | None
) -> tuple[list[tuple[bool, float]], int]:
    """The guesses of a round, and the draft steps it took to make them."""
    guesses: list[tuple[bool, float]] = []
    for depth in range(0 if plan is not None and plan.is_looked_up else n):
        guess = pair.guess(position + depth, depth)
        if plan is not None and not plan.keeps([*(p for _, p in guesses), guess[1]], depth):
            return guesses, depth + 1
        guesses.append(guess)
    return guesses, n


def _delay(pair: Simulated, clock: random.Random) -> float:
    factor = clock.lognormvariate(0.0, pair.noise)
    return factor * 3.0 if clock.random() < pair.tail else factor

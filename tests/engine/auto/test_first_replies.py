"""The first replies of 160 tokens with pairs whose passes take longer in steps, plain checks
included, and what an earlier start has learnt."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from statistics import mean

import msgspec
import pytest

from eaglechat.engine.auto.controller import CHAIN, Arm, Controller
from eaglechat.engine.auto.kept import Learnt
from eaglechat.engine.auto.planner import PlainChecks
from tests.engine.auto.pairs import STEPS, calibrated, on_steps
from tests.engine.auto.simulated_pair import Fixed, Reply, fixed_ms, write

TOKENS = 160
PAYS = [("Q4_0", 0.75), ("Q4_0", 0.88), ("Q4_K_M", 0.88), ("F16", 0.75), ("F16", 0.88)]
"""Pairs that drafting makes faster, and how often they accept a first token."""
DOES_NOT = [("Q4_0", 0.48), ("Q4_K_M", 0.48), ("Q8_0", 0.48), ("Q8_0", 0.6)]
SEEDS = range(1, 9)


def reply(kind: str, rate: float, seed: int, controller: Controller) -> Reply:
    return write(on_steps(kind, rate, seed), TOKENS, controller, checks=PlainChecks())


def chat(kind: str, rate: float, seed: int, controller: Controller) -> list[Reply]:
    return [reply(kind, rate, seed + 100 * k, controller) for k in range(3)]


def new(kind: str, rate: float, seed: int, learnt: Learnt | None = None) -> Controller:
    return Controller(calibrated(on_steps(kind, rate, seed)), learnt)


@lru_cache
def best_ms(kind: str, rate: float, seed: int) -> float:
    """Milliseconds of a reply with the best length, known only when it is written."""
    pair = on_steps(kind, rate, seed)
    return min(fixed_ms(pair, TOKENS, Fixed(Arm(CHAIN, n))) for n in (0, 1, 2, 3, 4, 5, 7))


def test_first_replies_are_nearly_as_fast_as_with_the_best_length_and_later_ones_are() -> None:
    first, later = [], []
    for kind, rate in (*PAYS, *DOES_NOT):
        for seed in SEEDS[:2]:
            replies = chat(kind, rate, seed, new(kind, rate, seed))
            shares = [best_ms(kind, rate, seed + 100 * k) / r.ms for k, r in enumerate(replies)]
            first.append(shares[0])
            later += shares[1:]
            # Over the whole conversation.
            assert sum(r.plain_ms for r in replies) >= 0.98 * sum(r.ms for r in replies)
    assert mean(first) >= 0.965
    assert mean(later) >= 0.99


@pytest.mark.parametrize(("kind", "rate"), DOES_NOT)
def test_where_drafting_does_not_pay_finding_that_out_costs_little(kind: str, rate: float) -> None:
    for seed in SEEDS:
        first = reply(kind, rate, seed, new(kind, rate, seed))
        assert first.plain_ms >= 0.97 * first.ms


def test_a_rejected_draft_does_not_end_drafting_in_a_reply_that_it_makes_faster() -> None:
    for seed in SEEDS:
        pair = on_steps("F16", 0.88, seed)
        unlucky = replace(pair, accepts=lambda at, depth: 0.01 if at < 5 else 0.9 * 0.97**depth)
        states = write(unlucky, TOKENS, Controller(calibrated(pair))).states
        assert sum(state.n > 0 for state in states) > len(states) / 2


@pytest.mark.parametrize("kind", STEPS)
def test_a_row_that_costs_nothing_is_drafted(kind: str) -> None:
    """Four rows of Q4_0 take no longer than three, so three tokens are drafted rather than two."""
    controller = new(kind, 0.8, 1)
    states = [s for one in chat(kind, 0.8, 1, controller) for s in one.states if s.n > 0]
    ms = [STEPS[kind](rows, 0) for rows in range(1, 18)]
    dearer = {n for n in range(1, 9) if ms[n + 1] <= ms[n]}
    assert not any(state.n in dearer for state in states[-40:] if state.reason == "best")


def learnt(kind: str, rate: float, seed: int, certainty: float = 0.25) -> Learnt:
    """What three replies to other prompts leave behind, as the next start reads it."""
    controller = new(kind, rate, seed + 1000)
    chat(kind, rate, seed + 1000, controller)
    found = controller.learnt()
    assert found is not None
    assert controller.learnt() is None
    read = msgspec.json.decode(msgspec.json.encode(found), type=Learnt)
    return msgspec.structs.replace(read, certainty=certainty)


def test_what_an_earlier_start_learnt_makes_the_first_reply_as_fast_as_later_ones() -> None:
    cold, warm = [], []
    for kind, rate in PAYS:
        for seed in SEEDS[:4]:
            best = best_ms(kind, rate, seed)
            cold.append(best / reply(kind, rate, seed, new(kind, rate, seed)).ms)
            kept = learnt(kind, rate, seed)
            warm.append(best / reply(kind, rate, seed, new(kind, rate, seed, kept)).ms)
    assert mean(warm) >= 0.98
    assert mean(warm) > mean(cold) + 0.01


@pytest.mark.parametrize("certainty", [0.25, 0.05])
@pytest.mark.parametrize(
    ("then", "now"),
    [
        (("F16", 0.88), ("Q8_0", 0.48)),
        (("F16", 0.75), ("Q4_0", 0.48)),
        (("Q4_0", 0.48), ("F16", 0.88)),
    ],
    ids=lambda one: f"{one[0]} {one[1]}",
)
def test_what_no_longer_holds_costs_little(
    then: tuple[str, float], now: tuple[str, float], certainty: float
) -> None:
    """The kernels, and how often the target accepts, are others by now."""
    shares = []
    for seed in SEEDS[:4]:
        replies = chat(*now, seed, new(*now, seed, learnt(*then, seed, certainty)))
        assert sum(r.plain_ms for r in replies) >= 0.975 * sum(r.ms for r in replies)
        shares.append(best_ms(*now, seed) / replies[0].ms)
    assert mean(shares) >= 0.93

"""When auto verifies what n-grams find: it costs only rows, and has acceptance rates of its own."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from eaglechat.engine.auto.controller import Controller
from eaglechat.wire.records import AutoReason
from tests.engine.auto.pairs import (
    BF16,
    PAIRS,
    best_ms,
    calibrated,
    chat,
    edits,
    steady,
    total_ms,
)
from tests.engine.auto.simulated_pair import Simulated
from tests.engine.auto.test_controller import keeps_the_ledger

SEEDS = range(1, 9)


def shared(pair: Simulated, controller: Controller) -> float:
    """The share of rounds that verified what was looked up."""
    states = [state for reply in chat(pair, controller) for state in reply.states]
    return mean(state.reason is AutoReason.LOOKED_UP for state in states)


@pytest.mark.parametrize(
    "seeds", [SEEDS[:2], pytest.param(SEEDS[2:], marks=pytest.mark.slow)], ids=["two", "six"]
)
def test_copies_are_read_off_many_tokens_at_a_time(seeds: range) -> None:
    gains = []
    for seed in seeds:
        pair = Simulated(BF16, steady(0.6), copies=edits, seed=seed)
        replies = chat(pair, Controller(calibrated(pair)))
        assert all(keeps_the_ledger(reply) for reply in replies)
        gains.append(best_ms(replace(pair, copies=None)) / total_ms(replies))
    assert mean(gains) >= 1.5


@pytest.mark.parametrize(
    "name",
    [
        "quantised on a CPU",
        pytest.param("bf16, fair draft", marks=pytest.mark.slow),
        pytest.param("gpu", marks=pytest.mark.slow),
    ],
)
def test_text_that_only_seems_to_repeat_costs_next_to_nothing(name: str) -> None:
    shares = []
    for seed in SEEDS[:4]:
        pair = replace(PAIRS[name], seed=seed, copies=lambda _position: 0)
        without = replace(pair, copies=None)
        replies = chat(pair, Controller(calibrated(pair)))
        assert all(keeps_the_ledger(reply) for reply in replies)
        bare = chat(without, Controller(calibrated(pair)))
        shares.append(total_ms(bare) / total_ms(replies))
    assert mean(shares) >= 0.98


@pytest.mark.parametrize("name", ["quantised on a CPU", "gpu"])
def test_a_short_reply_takes_no_long_look_up(name: str) -> None:
    """In a reply of 64 tokens, a long wrong guess could not be made up for."""
    pair = replace(PAIRS[name], copies=edits)
    states = chat(pair, Controller(calibrated(pair)))[0].states
    early = [state.n for state in states[:25] if state.reason is AutoReason.LOOKED_UP]
    late = [state.n for state in states if state.reason is AutoReason.LOOKED_UP]
    assert max(early, default=0) <= 3 < max(late)


def test_what_is_found_is_learnt_from_though_it_is_not_proposed() -> None:
    """After a chat that never repeats itself, copies are verified again within one reply."""
    quiet = Simulated(BF16, steady(0.6), copies=lambda _position: 0)
    controller = Controller(calibrated(quiet))
    assert shared(quiet, controller) < 0.05
    assert shared(replace(quiet, copies=edits), controller) > 0.2

"""The automatic draft length against simulated pairs: no clock, no chance, the same every time.

A chat is a few replies; learning is part of what is judged.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from itertools import accumulate
from statistics import mean

import pytest

from eaglechat.engine.auto.controller import LOSS_SHARE, Controller
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, AutoReason
from tests.engine.auto.pairs import (
    BF16,
    CALIBRATIONS,
    PAIRS,
    Q4_1,
    TOKENS,
    best_ms,
    calibrated,
    chat,
    edits,
    fixed_choices,
    gpu,
    steady,
    total_ms,
)
from tests.engine.auto.simulated_pair import Reply, Simulated, fixed_ms, write

SEEDS, CLEAR = range(1, 5), 0.95
"""One seed is enough if it is clear; of one pair a seed comes to 0.81, and seven to 0.97 or
more."""


def keeps_the_ledger(reply: Reply) -> bool:
    return reply.ms <= (1.0 + LOSS_SHARE) * reply.plain_ms + reply.dearest_loss_ms


@cache
def shares(name: str) -> dict[str, float]:
    """By kind of calibration, the time of chats with the best fixed choice, as a share of what they
    take with the controller. One seed after the other: all kinds write the same texts."""
    found: dict[str, list[float]] = {kind: [] for kind in CALIBRATIONS}
    for seed in SEEDS:
        pair = replace(PAIRS[name], seed=seed)
        unclear = [kind for kind, of_seeds in found.items() if min(of_seeds, default=0.0) < CLEAR]
        best = best_ms(pair) if unclear else 0.0
        for kind in unclear:
            replies = chat(pair, Controller(CALIBRATIONS[kind](pair)))
            assert all(keeps_the_ledger(reply) for reply in replies), (kind, seed)
            found[kind].append(best / total_ms(replies))
    return {kind: mean(of_seeds) for kind, of_seeds in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_chats_are_as_fast_as_with_the_best_fixed_choice_however_wrong_the_calibration(
    name: str,
) -> None:
    found = shares(name)
    assert min(found.values()) >= 0.9, found


@pytest.mark.slow
@pytest.mark.parametrize("kind", CALIBRATIONS)
def test_over_all_pairs_chats_are_on_average_as_fast_as_in_hindsight(kind: str) -> None:
    assert mean(shares(name)[kind] for name in PAIRS) >= (1.0 if kind == "exact" else 0.98)


@pytest.mark.parametrize("name", ["gpu", "quantised, copies", "block drafter, bf16"])
def test_what_fixed_choices_take_is_summed_up_as_a_reply_is_written(name: str) -> None:
    pair = PAIRS[name]
    for fixed in fixed_choices(pair)[::3]:
        assert fixed_ms(pair, 60, fixed) == pytest.approx(write(pair, 60, fixed).ms)


@pytest.mark.parametrize("seed", range(20))
def test_the_ledger_holds_for_any_costs_acceptance_and_calibration(seed: int) -> None:
    rng = random.Random(seed)
    slope, bend, step = rng.uniform(0.0, 1.2), rng.uniform(0.4, 1.0), rng.randint(2, 17)
    first, rise = rng.uniform(2.0, 60.0), rng.uniform(0.0, 1.5)
    rates = [rng.random() for _ in range(12)]
    pair = Simulated(
        verify=lambda width, n_past: (
            first
            * (1.0 + slope * (width - 1) ** bend + (rise if width >= step else 0.0))
            * (1.0 + n_past / 5000.0)
        ),
        accepts=lambda position, depth: rates[position // 50 % 12] * 0.95**depth,
        draft_step=first * rng.uniform(0.02, 0.3),
        seed=seed,
    )
    calibration = [*CALIBRATIONS.values()][seed % len(CALIBRATIONS)]
    for reply in chat(pair, Controller(calibration(pair)), replies=2):
        assert keeps_the_ledger(reply)


DOES_NOT_PAY = {
    "widths are dear": (PAIRS["quantised on a CPU"], TOKENS),
    # Taking in its rows would cost as much as twenty plain tokens.
    "a long prompt waits": (
        Simulated(Q4_1, steady(0.5), n_prompt=600, n_waiting=600, catch_up_row=0.15),
        250,
    ),
    # With a target as small as the built-in one, a row takes 2% of a plain token's time.
    "plain rounds leave dear rows": (
        replace(PAIRS["quantised on a CPU"], accepts=steady(0.1), catch_up_row=0.02 * Q4_1(1, 0)),
        TOKENS,
    ),
}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", DOES_NOT_PAY)
def test_a_draft_that_does_not_pay_costs_next_to_nothing(name: str, seed: int) -> None:
    pair, n_tokens = DOES_NOT_PAY[name]
    pair = replace(pair, seed=seed)
    reply = write(pair, n_tokens, Controller(calibrated(pair)))
    assert reply.ms <= 1.01 * reply.plain_ms


@pytest.mark.parametrize("row_ms", [0.1, 0.3])
def test_a_long_prompt_that_waits_for_the_draft_does_not_keep_it_waiting(row_ms: float) -> None:
    """Taking in the prompt costs the time of many plain tokens, and more with every plain round."""
    pair = replace(PAIRS["bf16, good draft"], n_prompt=400, n_waiting=400, catch_up_row=row_ms)
    reply = write(pair, 600, Controller(calibrated(pair)))
    assert sum(state.n > 0 for state in reply.states[-50:]) > 40


@pytest.mark.parametrize("longest", [1, 7])
def test_no_length_beyond_the_longest_is_expected_to_pay(longest: int) -> None:
    """A pass takes nearly as long as a plain token, so only the tokens of a long block pay."""
    pair = replace(PAIRS["block drafter on a gpu"], draft_base=6.0, longest=longest)
    controller = Controller(calibrated(pair))
    states = write(pair, 200, controller).states
    assert max(state.n for state in states) <= longest
    assert max(len(state.tokens_per_second) for state in states) == longest + 1


@pytest.mark.parametrize("name", ["gpu", "bf16, fair draft", "quantised, copies"])
def test_widths_that_other_work_delayed_while_they_were_timed_are_found_to_be_cheaper(
    name: str,
) -> None:
    pair = PAIRS[name]
    exact, delayed = (Controller(calibrated(pair, wider=wider)) for wider in (1.0, 3.0))
    assert total_ms(chat(pair, delayed)) < 1.2 * total_ms(chat(pair, exact))


def test_a_few_unlucky_drafts_do_not_end_drafting_for_a_whole_chat() -> None:
    """Where the rows of plain rounds are cheap enough to be taken in, the same reply drafts again;
    where they are not, the next one does."""
    useless_at_first = Simulated(BF16, lambda at, _depth: 0.02 if at < 300 else 0.8)
    resumed = {0.02: 0, 0.2: 0}
    for seed in range(1, 9):
        for row_ms in resumed:
            pair = replace(useless_at_first, seed=seed, catch_up_row=row_ms)
            controller = Controller()
            reply = write(pair, 900, controller)
            if row_ms == 0.2:
                reply = write(replace(pair, accepts=steady(0.8)), 400, controller)
            resumed[row_ms] += sum(state.n > 0 for state in reply.states[-100:]) > 60
    assert min(resumed.values()) >= 7


def test_plain_decoding_is_measured_now_and_then_even_where_drafting_wins() -> None:
    reply = write(PAIRS["gpu"], 3000, Controller())
    checks = [i for i, s in enumerate(reply.states) if s.reason is AutoReason.PLAIN_CHECK]
    assert checks[-1] > len(reply.states) / 2
    assert 5 <= len(checks) <= len(reply.states) / 32


def test_the_state_says_what_plain_would_have_been() -> None:
    reply = write(PAIRS["gpu"], 600, Controller())
    state = reply.states[-30]
    truth = 1000.0 / gpu(1, 0)
    assert state.tokens_per_second[0] == pytest.approx(truth, rel=0.05)
    assert state.tokens_per_second[state.n] > 1.5 * state.tokens_per_second[0]
    assert state.lost_ms < 0.0 < state.allowed_ms


@pytest.mark.parametrize("name", ["bf16, fair draft", "gpu"])
def test_no_draft_is_shorter_than_n_min(name: str) -> None:
    pair = PAIRS[name]
    reply = write(pair, TOKENS, Controller(calibrated(pair)), n_min=4)
    assert {state.n for state in reply.states} <= {0, *range(4, N_DRAFT_MAX_LIMIT + 1)}
    assert keeps_the_ledger(reply)


def test_the_same_observations_give_the_same_choices() -> None:
    pair = PAIRS["delays"]
    assert write(pair, 300, Controller()).states == write(pair, 300, Controller()).states


# --- n-grams: what they find costs only rows, and has acceptance rates of its own ---


def shared(pair: Simulated, controller: Controller) -> float:
    """The share of rounds that verified what was looked up."""
    states = [state for reply in chat(pair, controller) for state in reply.states]
    return mean(state.reason is AutoReason.LOOKED_UP for state in states)


def test_copies_are_read_off_many_tokens_at_a_time() -> None:
    gains = []
    for seed in SEEDS[:2]:
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
    for seed in SEEDS:
        pair = replace(PAIRS[name], seed=seed, copies=lambda _position: 0)
        without = replace(pair, copies=None)
        replies = chat(pair, Controller(calibrated(pair)))
        assert all(keeps_the_ledger(reply) for reply in replies)
        bare = chat(without, Controller(calibrated(pair)))
        shares.append(total_ms(bare) / total_ms(replies))
    assert mean(shares) >= 0.98


@pytest.mark.parametrize("n_tokens", [12, 25])
def test_a_chat_of_short_replies_does_not_lose_a_round_in_each(n_tokens: int) -> None:
    """Beside its share it loses no more than what a reply may lose in advance, and a round."""
    pair = replace(PAIRS["quantised on a CPU"], copies=lambda position: max(0, 3 - position % 7))
    controller = Controller(calibrated(pair))
    replies = [write(replace(pair, seed=seed), n_tokens, controller) for seed in range(40)]
    plain_ms = sum(reply.plain_ms for reply in replies)
    advance_ms = LOSS_SHARE * 128 * plain_ms / (40 * n_tokens)
    dearest_ms = max(reply.dearest_loss_ms for reply in replies)
    assert total_ms(replies) <= (1.0 + LOSS_SHARE) * plain_ms + advance_ms + dearest_ms


@pytest.mark.parametrize("name", ["quantised on a CPU", "gpu"])
def test_a_short_reply_takes_no_long_look_up(name: str) -> None:
    """In a reply of 64 tokens, a long wrong guess could not be made up for."""
    pair = replace(PAIRS[name], copies=edits)
    states = chat(pair, Controller(calibrated(pair)))[0].states
    early = [state.n for state in states[:25] if state.reason is AutoReason.LOOKED_UP]
    late = [state.n for state in states if state.reason is AutoReason.LOOKED_UP]
    assert max(early, default=0) <= 3 < max(late)


def test_the_ledger_counts_only_accepted_tokens_as_won() -> None:
    """Not the plain rounds before a look-up, which were not learnt from one by one."""
    pair = replace(PAIRS["useless draft"], copies=lambda position: max(0, 8 - position % 80))
    for reply in chat(pair, Controller(calibrated(pair))):
        accepted = accumulate((round_.n_accepted for round_ in reply.rounds), initial=0)
        for state, n_accepted in zip(reply.states, accepted, strict=False):
            assert -state.lost_ms <= 1.2 * n_accepted * pair.verify(1, 0)


def test_what_is_found_is_learnt_from_though_it_is_not_proposed() -> None:
    """After a chat that never repeats itself, copies are verified again within one reply."""
    quiet = Simulated(BF16, steady(0.6), copies=lambda _position: 0)
    controller = Controller(calibrated(quiet))
    assert shared(quiet, controller) < 0.05
    assert shared(replace(quiet, copies=edits), controller) > 0.2

"""How costs follow rounds that contradict the calibration, and a machine that becomes slower."""

from __future__ import annotations

import random

import numpy as np
import pytest

from eaglechat.engine.auto.calibration import CALIBRATED_DRAFT, Calibration
from eaglechat.engine.auto.costs import Costs, context_bucket

TRUE = {1: 7.0, 2: 9.0, 4: 11.0, 8: 14.0, 17: 18.0}
SLOW = 1.7
CHAIN = np.arange(1.0, 17.0)
"""A chain is as deep as it is long."""


def calibrated(slowed: float = 1.0) -> Costs:
    """Calibrated with the times of widths above 1 multiplied by `slowed`."""
    verify = tuple((width, ms * (slowed if width > 1 else 1.0)) for width, ms in TRUE.items())
    return Costs(Calibration(verify, draft=0.5 * (CALIBRATED_DRAFT + 1)))


def test_without_a_contradiction_the_calibration_stands() -> None:
    costs = calibrated()
    for width, ms in TRUE.items():
        assert costs.verify(0)[width - 1] == pytest.approx(ms)
    assert costs.verify(0)[2] == pytest.approx(10.0)
    assert costs.draft(CHAIN)[CALIBRATED_DRAFT] == pytest.approx(2.0)


@pytest.mark.parametrize("slowed", [1.6, 1 / 1.6])
def test_a_width_that_was_calibrated_wrong_corrects_the_others(slowed: float) -> None:
    costs = calibrated(slowed)
    costs.see_verify(1, 0, TRUE[1])
    costs.see_verify(4, 0, TRUE[4])

    verify = costs.verify(0)
    assert verify[3] == pytest.approx(TRUE[4], rel=0.05)
    for width in (2, 8):
        assert verify[width - 1] == pytest.approx(TRUE[width], rel=0.2)
    assert verify[0] == pytest.approx(TRUE[1], rel=0.05)


def test_a_delay_changes_little() -> None:
    costs = calibrated()
    for _ in range(20):
        costs.see_verify(1, 0, TRUE[1])
        costs.see_verify(4, 0, TRUE[4])

    costs.see_verify(4, 0, 10.0 * TRUE[4])

    assert costs.verify(0)[3] == pytest.approx(TRUE[4], rel=0.1)


def test_a_machine_that_slows_down_and_recovers_leaves_the_widths_as_they_were() -> None:
    costs, clock = calibrated(), random.Random(1)

    def see(width: int, slow: float, times: int) -> None:
        for _ in range(times):
            costs.see_verify(width, 0, TRUE[width] * slow * clock.lognormvariate(0.0, 0.04))

    see(1, 1.0, 20)
    see(4, 1.0, 20)
    for _ in range(5):
        for slow in (SLOW, 1.0):
            see(1, slow, 60)
            assert costs.verify(0)[3] == pytest.approx(TRUE[4] * slow, rel=0.2)


def test_another_context_begins_with_what_is_known_of_the_nearest() -> None:
    costs = calibrated(slowed=1.6)
    for _ in range(20):
        costs.see_verify(1, 0, TRUE[1])
        costs.see_verify(4, 0, TRUE[4])

    assert costs.verify(1)[3] == pytest.approx(TRUE[4], rel=0.05)
    assert costs.plain_error(1) > 3 * costs.plain_error(0)
    for _ in range(4):
        costs.see_verify(1, 1, 1.25 * TRUE[1])
    assert costs.verify(1)[3] == pytest.approx(1.25 * TRUE[4], rel=0.1)
    assert costs.verify(0)[3] == pytest.approx(TRUE[4], rel=0.05)


def test_begin_step_and_waiting_rows_of_a_draft_are_told_apart() -> None:
    costs, clock = calibrated(), random.Random(2)
    for _ in range(200):
        steps, waiting = clock.randint(1, 8), clock.choice((1, 2, 3, 32))
        costs.see_draft(steps, waiting, 1.5 + 0.6 * steps + 0.2 * waiting)

    assert costs.draft(CHAIN)[0] == 0.0
    assert costs.draft(CHAIN)[1] == pytest.approx(2.1, rel=0.1)
    assert costs.draft(CHAIN)[8] == pytest.approx(6.3, rel=0.1)
    assert costs.catch_up(32) == pytest.approx(6.4, rel=0.1)


def test_a_tree_s_levels_and_what_stands_beside_are_told_apart() -> None:
    costs, clock = calibrated(), random.Random(3)
    for _ in range(300):
        levels, siblings = clock.randint(1, 6), clock.randint(0, 8)
        costs.see_draft(levels, 2, 1.5 + 0.6 * levels + 0.15 * siblings, siblings)

    deep, shallow = costs.draft(CHAIN)[8], costs.draft(np.minimum(CHAIN, 3.0))[8]
    assert deep - shallow == pytest.approx(5 * (0.6 - 0.15), rel=0.15)
    assert costs.of_draft(3, 2, 5) == pytest.approx(1.5 + 1.8 + 0.75, rel=0.1)


def test_a_block_that_was_timed_at_one_length_learns_what_a_row_costs() -> None:
    """Of a block drafter, 3 tokens took 2 ms."""
    costs = Costs(Calibration(tuple(TRUE.items()), draft=2.0, longest=15, in_one_pass=True))
    assert costs.draft(CHAIN)[[1, 3, 15]] == pytest.approx([2.0, 2.0, 2.0])
    clock = random.Random(4)
    for _ in range(200):
        n = clock.randint(1, 15)
        costs.see_draft(n, 2, 1.4 + 0.2 * n)
    assert costs.draft(CHAIN)[[1, 15]] == pytest.approx([1.6, 4.4], rel=0.1)


def test_a_drafter_of_two_tokens_is_timed_at_two() -> None:
    costs = Costs(Calibration(tuple(TRUE.items()), draft=1.5, longest=2))
    assert costs.draft(CHAIN)[[1, 2]] == pytest.approx([1.0, 1.5])


def test_a_first_width_alone_is_enough_to_begin_with() -> None:
    costs = Costs(Calibration(verify=((1, 8.0),)))
    verify, draft = costs.verify(0).tolist(), costs.draft(CHAIN).tolist()
    assert verify == sorted(verify)
    assert draft == sorted(draft)
    assert draft[1] > 0.0


def test_a_context_ends_where_llama_cpp_attends_over_more_cells() -> None:
    buckets = [context_bucket(n_past) for n_past in (0, 255, 256, 511, 512, 1023, 1024)]
    assert buckets == [0, 0, 1, 1, 2, 2, 3]

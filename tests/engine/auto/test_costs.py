"""What the table of costs makes of a calibration that reality contradicts."""

from __future__ import annotations

import random

import pytest

from eaglechat.engine.auto.costs import CostTable, context_bucket


def calibrated(slowed: float) -> CostTable:
    table = CostTable(9)
    for size, ms in ((1, 7.0), (2, 9.0 * slowed), (4, 11.0 * slowed), (8, 14.0 * slowed)):
        table.calibrate(size, ms)
    return table


def test_a_size_that_is_much_faster_than_calibrated_corrects_the_others() -> None:
    table = calibrated(slowed=1.6)

    table.add(2, 0, 9.0)

    assert table.expected(0)[3] == pytest.approx(11.0)
    assert table.expected(0)[7] == pytest.approx(14.0)
    assert table.expected(0)[0] == 7.0


def test_a_size_that_is_slower_than_calibrated_proves_nothing_of_the_others() -> None:
    table = calibrated(slowed=1.0)

    table.add(2, 0, 27.0)

    assert table.expected(0)[3] == 11.0
    assert table.expected(0)[7] == 14.0


def test_a_machine_that_is_faster_than_at_calibration_corrects_nothing() -> None:
    """Plain decoding shows that it is the machine; the level follows it."""
    table = calibrated(slowed=1.0)
    table.add(1, 0, 4.2)

    table.add(2, 0, 5.4)

    assert table.cell(4, 0).mean == 11.0
    assert table.cell(8, 0).mean == 14.0


def test_only_the_first_measurement_judges_a_calibration() -> None:
    """A later one may find a machine that has changed since."""
    table = calibrated(slowed=1.6)
    table.add(8, 0, 22.0)

    table.add(2, 0, 9.0)

    assert table.expected(0)[7] == pytest.approx(22.0)
    assert table.expected(0)[3] == pytest.approx(17.6)


def test_one_measurement_confirms_a_calibration() -> None:
    table = CostTable(9)
    for size, ms in ((1, 5.0), (2, 10.0), (4, 20.0)):
        table.calibrate(size, ms)
    assert table.hoped(0)[1] == pytest.approx(7.5)
    assert table.times_measured(2) == 1

    table.add(4, 0, 20.0)

    assert table.hoped(0)[1] == pytest.approx(9.0)
    assert table.times_measured(2) == 2


SLOW = 1.7


def test_a_machine_that_slows_down_and_recovers_leaves_the_table_as_it_was() -> None:
    table, clock = CostTable(9), random.Random(1)

    def add(size: int, ms: float, times: int) -> None:
        for _ in range(times):
            table.add(size, 0, ms * clock.lognormvariate(0.0, 0.04))

    add(1, 8.0, 20)
    add(3, 12.0, 20)
    for _ in range(10):
        add(1, 8.0 * SLOW, 12)
        assert table.expected(0)[2] == pytest.approx(12.0 * SLOW, rel=0.1)
        add(1, 8.0, 12)
        assert table.expected(0)[2] == pytest.approx(12.0, rel=0.1)


def test_a_machine_that_slows_down_where_a_context_begins_is_not_the_context() -> None:
    table, dearer = CostTable(9), 1.2
    for size, ms in ((1, 8.0), (3, 12.0)):
        for _ in range(20):
            table.add(size, 0, ms)

    for slow in (SLOW, 1.0):
        for _ in range(16):
            table.add(1, 1, 8.0 * dearer * slow)
        assert table.expected(1)[2] == pytest.approx(12.0 * dearer * slow, rel=0.1)

    # Back in the short context nothing has been measured yet.
    assert table.expected(0)[2] == pytest.approx(12.0, rel=0.25)


def test_a_context_ends_where_llama_cpp_attends_over_more_cells() -> None:
    buckets = [context_bucket(n_past) for n_past in (0, 255, 256, 511, 512, 1023, 1024)]
    assert buckets == [0, 0, 1, 1, 2, 2, 3]

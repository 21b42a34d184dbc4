"""What the table of costs makes of a calibration that reality contradicts."""

from __future__ import annotations

import pytest

from eaglechat.engine.costs import CostTable


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

"""Student's distribution against its printed tables."""

from __future__ import annotations

import pytest

from eaglechat.wire.gain import student_t


@pytest.mark.parametrize(
    ("freedom", "share", "quantile"),
    [
        (1, 0.975, 12.706), (2, 0.975, 4.303), (3, 0.975, 3.182), (7, 0.975, 2.365),
        (7, 0.999, 4.785), (15, 0.975, 2.131), (30, 0.995, 2.750), (120, 0.975, 1.980),
        (1, 0.9995, 636.62), (1e6, 0.975, 1.972),
    ],
)  # fmt: skip
def test_the_quantiles_are_those_of_the_tables(
    freedom: float, share: float, quantile: float
) -> None:
    assert student_t(freedom, share) == pytest.approx(quantile, abs=5e-4, rel=5e-5)

"""A gain in words."""

from __future__ import annotations

import pytest

from eaglechat.wire.gain import GainVerdict, MeasuredGain
from eaglechat.words.gain import in_words


@pytest.mark.parametrize(
    ("speed_up", "error", "verdict", "words"),
    [
        (1.4, 0.1, "faster", "1.4x ±0.1 as fast as plain with length 3"),
        (1.4, 0.012, "faster", "1.40x ±0.02 as fast as plain with length 3"),
        (1.06, 0.04, "faster", "1.06x ±0.04 as fast as plain with length 3"),
        (0.7, 0.21, "slower", "0.7x ±0.3 as fast as plain with length 3"),
        (0.8, 0.3, "unclear", "leaning slower: 0.8x ±0.3 as fast as plain with length 3"),
        (1.0, 0.3, "unclear", "can't tell: 1.0x ±0.3 as fast as plain with length 3"),
        # Faster for certain, but by less than counts.
        (1.03, 0.01, "same", "same as plain with length 3"),
        (1.0, 0.05, "same", "same as plain with length 3"),
        (1.03, 0.04, "unclear", "leaning faster: 1.03x ±0.04 as fast as plain with length 3"),
        (1.4, None, "unclear", "can't tell: 1.40x as fast as plain with length 3"),
    ],
)
def test_nothing_is_claimed_that_its_error_does_not_allow(
    speed_up: float, error: float | None, verdict: GainVerdict, words: str
) -> None:
    assert MeasuredGain(speed_up, error).verdict == verdict
    assert in_words(speed_up, error, "with length 3") == words

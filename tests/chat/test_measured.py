"""What is measured of a reply, and of its parts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eaglechat.chat.measured import by_part, measured
from eaglechat.wire.records import Origin, Part, Round, Token
from eaglechat.wire.stats import stats_of
from tests.wire.test_stats import a_round


def test_the_speed_is_tokens_over_the_wall_time_of_the_rounds() -> None:
    rounds = [a_round(drafted=1, accepted=1, ms=20.0)] * 3
    assert measured(rounds).tokens_per_second == pytest.approx(2 * 1000.0 / 20.0)
    assert measured([]).tokens_per_second is None


def part_round(*parts: Part | None, ms: float = 10.0) -> Round:
    """A plain round for each token would be usual; here one round gives them all."""
    tokens = tuple(Token(1, "t", Origin.PLAIN, None, part) for part in parts)
    return replace(a_round(drafted=0, accepted=0, ms=ms), tokens=tokens)


def test_parts_are_counted_apart_and_markers_belong_to_none() -> None:
    stats = by_part(
        [
            part_round(None),
            part_round(Part.REASONING, Part.REASONING, ms=20.0),
            part_round(Part.REASONING, None, Part.ANSWER, ms=30.0),
            part_round(Part.ANSWER, ms=5.0),
        ]
    )

    assert (stats[Part.REASONING].written, stats[Part.ANSWER].written) == (3, 2)
    assert (stats[Part.REASONING].ms, stats[Part.ANSWER].ms) == (50.0, 15.0)
    assert stats[Part.REASONING].tokens_per_second == pytest.approx(5 / 0.05)


def test_a_reply_without_reasoning_has_one_part() -> None:
    rounds = [a_round(drafted=3, accepted=2)]
    ((part, own),) = by_part(rounds).items()
    assert (part, own.written, own.ms, own.stats) == (Part.ANSWER, 3, 10.0, stats_of(rounds))

from __future__ import annotations

import pytest

from eaglechat.wire.records import DraftToken, Origin, Round, RoundTimings, Token
from eaglechat.wire.stats import DrafterStats, SpeculationStats, stats_of, who_drafted


def a_round(*, drafted: int, accepted: int, tested: int | None = None, ms: float = 10.0) -> Round:
    """A round as the loop makes one; `tested` only where it ended before a rejection."""
    if tested is None:
        tested = accepted if accepted == drafted else accepted + 1
    last = Origin.PLAIN if not drafted else Origin.BONUS
    if tested > accepted:
        last = Origin.CORRECTION
    origins = [Origin.ACCEPTED] * accepted + [last]
    return Round(
        index=0,
        n_draft_max=drafted,
        drafted=tuple(DraftToken(id, "d", 0.5, id - 1) for id in range(drafted)),
        n_tested=tested,
        n_accepted=accepted,
        tokens=tuple(Token(id, "t", origin) for id, origin in enumerate(origins)),
        n_past=0,
        timings=RoundTimings(1.0, 2.0, 3.0, 4.0, ms),
    )


def test_rates_are_over_what_was_tested_not_over_what_was_drafted() -> None:
    rounds = [
        a_round(drafted=3, accepted=3),
        a_round(drafted=3, accepted=1),
        a_round(drafted=3, accepted=0),
        a_round(drafted=0, accepted=0),
    ]

    stats = stats_of(rounds)

    assert (stats.rounds, stats.verify_steps, stats.tokens) == (4, 3, 4 + 2 + 1 + 1)
    assert (stats.drafted, stats.tested, stats.accepted) == (9, 3 + 2 + 1, 4)
    assert stats.acceptance_rate == pytest.approx(4 / 6)
    assert stats.mean_accepted_length == pytest.approx(1 + 4 / 3)
    assert stats.per_position == pytest.approx((2 / 3, 1 / 2, 1 / 1))


def test_a_reply_that_ends_inside_a_draft_counts_only_what_the_target_saw() -> None:
    stats = stats_of([a_round(drafted=5, accepted=2, tested=2)])

    assert (stats.tested, stats.accepted, stats.drafted) == (2, 2, 5)
    assert stats.per_position == (1.0, 1.0)


@pytest.mark.parametrize("rounds", [[], [a_round(drafted=0, accepted=0)] * 3])
def test_without_a_draft_there_are_no_rates(rounds: list[Round]) -> None:
    stats = stats_of(rounds)

    assert stats.acceptance_rate is None
    assert stats.mean_accepted_length is None
    assert stats.per_position == ()
    assert stats_of([]) == SpeculationStats()


def test_the_rejected_token_is_the_one_after_the_accepted() -> None:
    rejected = a_round(drafted=3, accepted=1).rejected
    assert rejected is not None
    assert rejected.id == 1
    assert a_round(drafted=3, accepted=3).rejected is None
    assert a_round(drafted=3, accepted=2, tested=2).rejected is None
    assert a_round(drafted=0, accepted=0).rejected is None


def test_who_drafted_is_who_proposed_tokens_not_who_comes_first() -> None:
    by_drafter = {"ngram": DrafterStats(rounds=1), "mtp": DrafterStats(rounds=2)}
    assert who_drafted(by_drafter, "eagle3") == "mtp"
    assert who_drafted({"ngram": DrafterStats()}, "eagle3") == "eagle3"

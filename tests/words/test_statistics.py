"""The numbers of a reply in JSON and in a line."""

from __future__ import annotations

from msgspec.structs import replace

from eaglechat.chat.measured import Measured, measured
from eaglechat.words.statistics import (
    part_in_json,
    speculation_in_json,
    summary,
    timings_in_json,
)
from eaglechat.words.wording import tokens_per_second
from tests.chat.records import recorded, round_of

ROUNDS = [round_of(1, 2), replace(round_of(3, drafted=0), index=1)]


def test_names_are_those_that_scripts_read() -> None:
    one = recorded(*ROUNDS).measured
    assert [*speculation_in_json(one.stats)] == [
        "rounds", "drafted", "tested", "accepted", "acceptance_rate", "mean_accepted_length",
        "per_position", "trees", "by_drafter",
    ]  # fmt: skip
    assert [*timings_in_json(one)] == [
        "prefill_ms", "prefill_tokens", "generation_ms", "tokens_per_second", "draft_ms",
        "verify_ms",
    ]  # fmt: skip
    assert [*part_in_json(one)] == [
        "tokens", "tokens_per_second", "acceptance_rate", "mean_accepted_length",
    ]  # fmt: skip


def test_a_reply_in_which_nothing_was_tested_has_the_defaults_of_json() -> None:
    plain = measured([round_of(1, drafted=0)])
    speculation = speculation_in_json(plain.stats)
    assert (speculation["acceptance_rate"], speculation["mean_accepted_length"]) == (0.0, 1.0)
    assert part_in_json(plain)["acceptance_rate"] is None
    assert set(timings_in_json(replace(plain, timings=None)).values()) == {None}


def test_the_summary_has_the_known_numbers_only() -> None:
    whole = measured(ROUNDS)
    assert summary(whole) == [
        "3 tokens",
        tokens_per_second(whole.tokens_per_second),
        "accepted 1 of 2 tested draft tokens (50%)",
        "mean accepted length 2.00",
    ]
    assert summary(Measured(), is_over=False) == []

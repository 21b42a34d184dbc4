"""Prompt lookup on its own: where it looks, and what it proposes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaglechat.engine.drafters.ngram import look_up
from eaglechat.engine.drafters.proposal import Limits

FREE = Limits(16)


def proposed(text: Sequence[int], limits: Limits = FREE) -> list[int]:
    """What may follow a text."""
    return list(look_up(text[:-1], text[-1], limits).ids)


def test_what_followed_the_same_tokens_is_proposed_as_far_as_allowed() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3]
    assert proposed(text, Limits(4)) == [4, 5, 6, 7]
    assert proposed([1, 2, 3, 4, 5, 6, 7]) == []
    assert proposed([1]) == []


def test_a_repetition_goes_on_beyond_the_end_of_the_text() -> None:
    assert proposed([1, 2, 3, 1, 2, 3, 1, 2], Limits(7)) == [3, 1, 2, 3, 1, 2, 3]
    assert proposed([5, 5, 5], Limits(3)) == [5, 5, 5]


def test_probabilities_are_the_share_of_places_that_agree_and_end_a_draft() -> None:
    text = [1, 2, 3, 4, 9, 1, 2, 3, 5, 9, 8, 1, 2]
    found = look_up(text[:-1], 2, Limits(2))
    assert found.probabilities == pytest.approx((2 / 2.5, 1 / (2 + 1 / 3)))
    assert proposed(text, Limits(2, p_min=0.6)) == [3]
    assert proposed(text, Limits(2, worth=[0.0, 1.1], by_probability=[1.0] * 10)) == [3]
    assert proposed(text, Limits(2, n_min=2, p_min=0.6)) == []
    sure = look_up([*range(20), *range(12)], 12, Limits(1))
    assert (sure.ids, sure.probabilities[0] > 0.9, sure.drafter) == ([13], True, "ngram")


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
@settings(max_examples=100)
def test_a_proposal_follows_an_earlier_place_of_the_longest_end(text: list[int]) -> None:
    """Compared with a slow search."""
    best = max(
        (
            (length, place)
            for place in range(2, len(text))
            for length in range(2, min(12, place) + 1)
            if text[place - length : place] == text[-length:]
        ),
        default=None,
    )
    assert proposed(text, Limits(1)) == ([] if best is None else [text[best[1]]])


def test_a_text_that_grows_by_what_was_proposed_may_be_an_array() -> None:
    """Which cannot grow while numpy looks at it."""
    text = array("i", [1, 2, 3, 1, 2])
    for _ in range(5):
        text.extend(look_up(text, 3, Limits(2)).ids)
    assert text.tolist() == [1, 2, 3, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2]

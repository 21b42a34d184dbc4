"""Prompt lookup on its own: where it looks, what it proposes, what it forgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from eaglechat.engine.drafters.base import Drafter, Limits
from eaglechat.engine.drafters.ngram import NgramDrafter
from eaglechat.wire.errors import DrafterError

FREE = Limits(16)


@dataclass
class Decoded:
    """A batch, as far as this drafter looks at one."""

    tokens: list[int]
    first: int = 0
    positions: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.positions = list(range(self.first, self.first + len(self.tokens)))

    def __len__(self) -> int:
        return len(self.tokens)


def drafter_of(text: Sequence[int]) -> NgramDrafter:
    drafter = NgramDrafter()
    drafter.resume(text, to_draft=True)
    return drafter


def proposed(text: Sequence[int], limits: Limits = FREE) -> list[int]:
    """What may follow a text."""
    return drafter_of(text[:-1]).propose(len(text) - 1, text[-1], limits).ids


def test_what_followed_the_same_tokens_is_proposed_as_far_as_allowed() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3]
    assert proposed(text, Limits(4)) == [4, 5, 6, 7]
    assert proposed([1, 2, 3, 4, 5, 6, 7]) == []
    assert proposed([1]) == []


def test_the_longest_match_wins_and_among_its_places_the_latest() -> None:
    text = [7, 1, 2, 3, 9, 1, 2, 4, 8, 1, 2, 5, 7, 1, 2]
    assert proposed(text, Limits(1)) == [3]
    assert proposed([6, *text[1:-3], 1, 2], Limits(1)) == [5]


def test_texts_that_are_gone_leave_nothing_behind() -> None:
    drafter = drafter_of(range(100))
    drafter.propose(100, 1, FREE)
    drafter.resume([], to_draft=True)
    drafter.propose(0, 1, FREE)
    assert not drafter._places


def test_a_repetition_goes_on_beyond_the_end_of_the_text() -> None:
    assert proposed([1, 2, 3, 1, 2, 3, 1, 2], Limits(7)) == [3, 1, 2, 3, 1, 2, 3]
    assert proposed([5, 5, 5], Limits(3)) == [5, 5, 5]


def test_probabilities_are_the_share_of_places_that_agree_and_end_a_draft() -> None:
    text = [1, 2, 3, 4, 9, 1, 2, 3, 5, 9, 8, 1, 2]
    drafter = drafter_of(text[:-1])
    both, one = (token.probability for token in drafter.propose(12, 2, Limits(2)))
    assert (both, one) == pytest.approx((2 / 2.5, 1 / (2 + 1 / 3)))
    assert drafter.propose(12, 2, Limits(2, p_min=0.6)).ids == [3]
    assert drafter.propose(12, 2, Limits(2, is_worth=lambda seen, _others: len(seen) < 2)).ids == [
        3
    ]
    sure = drafter_of([*range(20), *range(12)]).propose(32, 12, Limits(1))
    assert (sure.ids, sure[0].probability > 0.9, sure[0].drafter) == ([13], True, "ngram")


def test_a_drafter_out_of_step_says_so() -> None:
    drafter = drafter_of([1, 2, 3])
    with pytest.raises(DrafterError, match=r"saw 3 tokens, the batch goes on at 5"):
        drafter.see(Decoded([1], first=5))
    with pytest.raises(DrafterError, match=r"saw 3 tokens, drafting after position 4 needs 4"):
        drafter.propose(4, 1, FREE)


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


class Told(RuleBasedStateMachine):
    """Whatever happened before, it proposes what a fresh drafter with the same text proposes."""

    def __init__(self) -> None:
        super().__init__()
        self.drafter: Drafter = NgramDrafter()
        self.text: list[int] = []

    @rule(tokens=st.lists(st.integers(0, 3), min_size=1, max_size=6), data=st.data())
    def decode_and_accept(self, tokens: list[int], data: st.DataObject) -> None:
        self.drafter.see(Decoded(tokens, first=len(self.text)))
        path = data.draw(st.sets(st.integers(0, len(tokens) - 2))) if len(tokens) > 1 else set()
        self.drafter.accept(sorted(path))
        self.text += [tokens[0], *(tokens[1 + index] for index in sorted(path))]

    @rule(kept=st.integers(0, 30), more=st.lists(st.integers(0, 3), max_size=4))
    def resume(self, kept: int, more: list[int]) -> None:
        self.text = [*self.text[:kept], *more]
        assert self.drafter.resume(self.text, to_draft=False) == len(self.text)

    @rule(start=st.integers(0, 10), length=st.integers(0, 10))
    def shift(self, start: int, length: int) -> None:
        end = min(start + length, len(self.text))
        self.drafter.shift(min(start, end), end)
        del self.text[min(start, end) : end]

    @invariant()
    def proposes_as_if_new(self) -> None:
        assert self.drafter.known == len(self.text)
        for last in (0, 3):
            expected = drafter_of(self.text).propose(len(self.text), last, FREE)
            assert self.drafter.propose(len(self.text), last, FREE) == expected


def test_what_it_was_told_before_leaves_no_trace() -> None:
    run_state_machine_as_test(Told, settings=settings(max_examples=40, stateful_step_count=12))

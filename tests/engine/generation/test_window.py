"""A context that is full: which turns leave, as arithmetic."""

from __future__ import annotations

import random

import pytest

from eaglechat.engine.prompt import Asked, ContextWindow
from eaglechat.engine.sequences import find_cut


class Lengths(Asked):
    """Turns of given lengths behind a system prompt of ten tokens."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = lengths
        super().__init__(self.without(0))

    @property
    def count(self) -> int:
        return len(self.lengths)

    def without(self, n: int) -> tuple[int, ...]:
        turns = enumerate(self.lengths[n:], n)
        return (*[0] * 10, *(turn for turn, length in turns for _ in range(length)))


def window_of(*lengths: int, n_ctx: int = 400, can_shift: bool = True) -> ContextWindow:
    return ContextWindow(Lengths(*lengths), n_ctx, can_shift=can_shift)


@pytest.mark.parametrize(
    ("lengths", "can_shift", "n_written", "first_turn"),
    [
        # A quarter of the context is free then, or half of it if the rest has to be read again.
        ((80, 80, 80, 80, 60), True, 0, 2),
        ((80, 80, 80, 80, 60), False, 0, 3),
        # What a reply has written counts.
        ((80, 80, 80, 60), True, 0, 1),
        ((80, 80, 80, 60), True, 80, 2),
    ],
)
def test_as_few_turns_leave_as_free_enough_of_the_context(
    lengths: tuple[int, ...], can_shift: bool, n_written: int, first_turn: int
) -> None:
    window = window_of(*lengths, can_shift=can_shift)
    assert window.move(n_written)
    left = sum(lengths[first_turn:])
    found = window.first_turn, window.tokens_dropped, len(window.tokens)
    assert found == (first_turn, sum(lengths) - left, 10 + left)
    assert window.has_room(1000)


def test_a_short_reply_needs_no_more_room_than_it_can_fill() -> None:
    window = window_of(80, 80, 80, 80, 60)
    assert window.has_room(10)
    assert not window.has_room(11)


def test_the_last_turn_never_leaves() -> None:
    window = window_of(100, 390)
    assert window.move()
    assert (window.first_turn, len(window.tokens)) == (1, 400)
    assert not window.move()
    assert not ContextWindow(Asked([1] * 400), 400, can_shift=True).move()


def test_turns_that_left_stay_away_as_long_as_the_cache_holds_their_conversation() -> None:
    turns = Lengths(80, 80, 80, 60)
    ours, others = [*turns.without(2), 9, 9], [*[0] * 10, *[7] * 150]
    for cached, first_turn in ((ours, 2), (others, 0), ([], 0)):
        window = ContextWindow(turns, 300, can_shift=True)
        before = window.fit(1, 2, cached)
        assert before == turns.without(first_turn)


def test_a_cut_turns_one_sequence_into_the_other_at_a_token_they_share() -> None:
    draw = random.Random(5)
    for _ in range(300):
        head, removed, rest = (
            [draw.choice("ab") for _ in range(draw.randrange(1, 9))] for _ in range(3)
        )
        before, after = head + removed + rest, head + rest
        cut = find_cut([*map(ord, before)], [*map(ord, after)])
        assert cut is not None
        assert before[: cut.start] + before[cut.stop :] == after
    assert find_cut([1, 5, 2, 3, 5, 6, 7], [1, 5, 6, 7]) == range(1, 4)


@pytest.mark.parametrize("after", [[1, 2, 9], [1, 2, 3, 4], [2, 4], [1, 2, 3, 4, 5]])
def test_there_is_no_cut_where_more_than_one_stretch_differs(after: list[int]) -> None:
    assert find_cut([1, 2, 3, 4], after) is None

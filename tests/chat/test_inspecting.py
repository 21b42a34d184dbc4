"""What stood in each place of a round, from the records alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eaglechat.chat.inspecting import CandidateToken, look_inside
from eaglechat.wire.records import DraftToken, Likely, Origin, Round, RoundTimings, Token


def round_with(
    tokens: list[Token],
    drafted: list[DraftToken],
    likely: tuple[tuple[Likely, ...], ...] = (),
) -> Round:
    n_accepted = sum(token.origin is Origin.ACCEPTED for token in tokens)
    return Round(
        index=0, n_draft_max=3, drafted=tuple(drafted), n_tested=n_accepted + 1,
        n_accepted=n_accepted, tokens=tuple(tokens), n_past=9, likely=likely,
        timings=RoundTimings(1.0, 2.0, 0.0, 0.0, 3.0),
    )  # fmt: skip


def fates(candidates: list[CandidateToken]) -> list[tuple[str | None, str]]:
    return [(one.text, one.fate) for one in candidates]


CHAIN = [
    DraftToken(1, "a", 0.9, -1, "eagle3"),
    DraftToken(2, "b", 0.5, 0, "eagle3"),
    DraftToken(3, "c", 0.4, 1, "eagle3"),
]


def test_a_chain_is_accepted_up_to_the_first_that_is_rejected() -> None:
    positions, untested = look_inside(
        round_with([Token(1, "a", Origin.ACCEPTED), Token(9, "x", Origin.CORRECTION)], CHAIN)
    )

    (_, first), (_, second) = positions
    assert fates(first) == [("a", "accepted")]
    assert fates(second) == [("x", "sampled"), ("b", "rejected")]
    assert (second[1].draft, second[1].chance) == (0.5, None)
    assert untested == [CHAIN[2]]


def test_what_was_likely_comes_in_its_order_with_what_was_drafted_in_it() -> None:
    likely = ((Likely(9, "x", 0.6, 1.0), Likely(1, "a", 0.3, 0.0), Likely(8, "y", 0.1, 0.0)),)
    positions, untested = look_inside(round_with([Token(9, "x", Origin.CORRECTION)], CHAIN, likely))

    ((_, candidates),) = positions
    assert fates(candidates) == [("x", "sampled"), ("a", "rejected"), ("y", "")]
    assert [one.target for one in candidates] == [0.6, 0.3, 0.1]
    assert [one.draft for one in candidates] == [None, 0.9, None]
    assert untested == CHAIN[1:]


def test_a_tree_is_followed_along_the_accepted_branch() -> None:
    tree = [
        DraftToken(1, "a", 0.6),
        DraftToken(2, "b", 0.3),
        DraftToken(3, "c", 0.5, 0),
        DraftToken(4, "d", 0.5, 1),
    ]
    positions, untested = look_inside(
        round_with([Token(2, "b", Origin.ACCEPTED), Token(4, "d", Origin.ACCEPTED),
                  Token(5, "e", Origin.BONUS)], tree)
    )  # fmt: skip

    assert [fates(candidates) for _, candidates in positions] == [
        [("a", "rejected"), ("b", "accepted")],
        [("d", "accepted")],
        [("e", "sampled")],
    ]
    assert [one.text for one in untested] == ["c"]


def test_what_an_engine_does_not_report_stays_unknown() -> None:
    silent = [DraftToken(None, None, None, i - 1) for i in range(2)]
    positions, _ = look_inside(
        round_with([Token(1, "a", Origin.ACCEPTED), Token(2, "b", Origin.CORRECTION)], silent)
    )

    (_, first), (_, second) = positions
    assert fates(first) == [(None, "accepted")]
    assert fates(second) == [("b", "sampled"), (None, "rejected")]


def test_a_plain_round_has_one_place() -> None:
    positions, untested = look_inside(round_with([Token(1, "a", Origin.PLAIN)], []))

    ((_, candidates),) = positions
    assert fates(candidates) == [("a", "sampled")]
    assert not untested


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 4)), max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(Origin)), max_size=5),
)
def test_any_record_can_be_looked_into(
    drafted: list[tuple[int, int]], tokens: list[tuple[int, Origin]]
) -> None:
    """A history may hold anything that its format allows."""
    round_ = round_with(
        [Token(id, str(id), origin) for id, origin in tokens],
        [DraftToken(id, str(id), 0.5, parent) for id, parent in drafted],
    )
    positions, untested = look_inside(round_)

    assert [token for token, _ in positions] == list(round_.tokens[: len(positions)])
    for _, candidates in positions:
        assert sum(one.fate in ("accepted", "sampled") for one in candidates) == 1
    assert len(untested) <= len(drafted)

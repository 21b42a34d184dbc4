"""What is typed to find chats: words, phrases, scripts without spaces, and whatever else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.chat.search import excerpt, folded, parse


def marked(typed: str, text: str) -> list[str]:
    return [text[start:stop] for start, stop in parse(typed).marks(text)]


FOUND = [
    ("theo", "Pythagorean theorem", ["theo"]),
    ("THEOREM pyth", "Pythagorean theorem", ["Pyth", "theorem"]),
    ("pythagorean theorem", "Pythagorean x theorem", ["Pythagorean", "theorem"]),
    ('"pythagorean theorem"', "a Pythagorean\ntheorem", ["Pythagorean\ntheorem"]),
    ('"pythagorean theo', "a Pythagorean theorem", ["Pythagorean theo"]),
    ("Theore", "a theorem", ["theore"]),
    ("cafet", "Cafétéria", ["Cafét"]),
    ("cafe", "Le Café est fermé", ["Café"]),
    ("n_draft_max", "set n_draft_max to 3", ["n_draft_max"]),
    ("don't", "I don't know", ["don't"]),
    ("東京", "私は東京に行く", ["東京"]),
    ("京", "私は東京に行く", ["京"]),
    ("is", "what is it", ["is"]),
    ("C++", "in C++ and Rust", ["C"]),
    ('he said "no way', 'he said: "no way!"', ["he", "said", "no way"]),
]
NOT_FOUND = [
    ("orem", "theorem"),
    ('"theo"', "theorem"),
    ('"theorem pythagorean"', "pythagorean theorem"),
    ("th", "theorem"),
    ("東西", "東京と西"),
    ("one two", "one"),
]


@pytest.mark.parametrize(("typed", "text", "marks"), FOUND)
def test_what_is_found_is_marked(typed: str, text: str, marks: list[str]) -> None:
    assert parse(typed).is_in(text)
    assert marked(typed, text) == marks


@pytest.mark.parametrize(("typed", "text"), NOT_FOUND)
def test_what_is_not_found(typed: str, text: str) -> None:
    assert not parse(typed).is_in(text)


@given(st.text() | st.text(alphabet="\"*:(){}^-+\\'NEARANDOTab \x00\ud800東é"), st.text())
def test_nothing_that_is_typed_raises(typed: str, text: str) -> None:
    query = parse(typed)
    query.is_in(text)
    shown = excerpt(text, query)
    assert all(0 <= start < stop <= len(shown) for start, stop in query.marks(shown))


@given(st.text())
def test_folding_keeps_places(text: str) -> None:
    assert len(folded(text)) == len(text)


def test_an_excerpt_is_the_words_around_the_first_hit() -> None:
    query = parse("needle")
    shown = excerpt("before " * 50 + "\nthe needle\n\n is here " + "after " * 50, query)
    assert "before the needle is here after" in shown
    assert shown.startswith("…before")
    assert shown.endswith("…")
    ((start, stop),) = query.marks(shown)
    assert shown[start:stop] == "needle"


def test_an_excerpt_without_a_hit_is_the_beginning() -> None:
    assert excerpt("one\ntwo", parse("three")) == "one two"

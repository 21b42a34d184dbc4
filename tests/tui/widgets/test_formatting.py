"""The formatted text of the live view: what is shown, in which ink, also while it grows."""

from __future__ import annotations

import sys
from types import FrameType
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eaglechat.tui.widgets.transcript import formatting
from eaglechat.tui.widgets.transcript.formatting import IN_CODE, GrowingText, Run
from eaglechat.tui.widgets.transcript.wrapping import TEXT
from tests.tui.widgets.transcript_app import text_of


def shown(text: str) -> list[str]:
    drawn = GrowingText(20)
    drawn.add([Run(text, TEXT)], is_over=True)
    assert drawn.text == text
    return [text_of(row) for row in drawn.rows]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("# The sea\n\n#hash\n#", ["The sea", "", "#hash", "#"]),
        ("- one two three four five six", ["- one two three four", "  five six"]),
        ("10. one two three four five", ["10. one two three ", "    four five"]),
        ("> one two three four five", ["│ one two three four", "│ five"]),
        ("```py\nx = 1\n\n# no\n```\nend", ["╭ py", "│ x = 1", "│ ", "│ # no", "╰ copy", "end"]),
        ("~~~\n```\n~~~~\n", ["╭ ", "│ ```", "╰ copy", ""]),
        ("**a** *b* `c*` 2 * 3 * 4", ["a b c* 2 * 3 * 4"]),
        ("f(**kwargs) a_b_c *x", ["f(**kwargs) a_b_c *x"]),
        ("***a b*** ``c`d``", ["a b c`d"]),
        ("| **a** | b |", ["| **a** | b |"]),
    ],
)
def test_a_line_is_formatted_by_its_marks(text: str, rows: list[str]) -> None:
    assert [row.rstrip() for row in shown(text)] == [row.rstrip() for row in rows]


def test_formats_keep_the_ink_of_each_token() -> None:
    drawn = GrowingText(40)
    runs = [Run("**bold ", "guessed"), Run("one** and `co", TEXT), Run("de`", "guessed")]
    drawn.add([*runs, Run("\n# top", TEXT)], is_over=True)
    pieces = [piece for row in drawn.rows for piece in row]
    assert [(one.shown.strip(), one.style) for one in pieces if one.shown.strip()] == [
        ("bold", "guessed strong"), ("one", "text strong"), ("and", TEXT), ("co", "text code"),
        ("de", "guessed code"), ("top", "text strong"),
    ]  # fmt: skip


def test_marks_at_the_growing_end_are_taken_to_be_closed_until_the_line_ends() -> None:
    drawn = GrowingText(40)
    drawn.add([Run("some **bo", TEXT), Run("ld", TEXT)])
    assert text_of(drawn.rows[0]) == "some bold"
    assert drawn.rows[0][-1].style == "text strong"
    drawn.add([Run("\n", TEXT)])
    assert text_of(drawn.rows[0]) == "some **bold"


texts = st.lists(
    st.sampled_from(
        [
            "**",
            "*",
            "`",
            "```",
            "\n",
            "# ",
            "- ",
            "> ",
            "1. ",
            "|",
            " ",
            "word",
            " the",
            "漢字",
            "\t",
        ]
    ),
    max_size=300,
)


def cells(drawn: GrowingText) -> list[list[tuple[str, object]]]:
    """The characters of each row, with their styles."""
    return [[(char, piece.style) for piece in row for char in piece.shown] for row in drawn.rows]


@given(texts, st.data(), st.sampled_from([1000, 40]))
@example(["1. **", *[" the word"] * 300, "**", " end"], None, 400)
@example(["- **a ", *["b* *c ``"] * 300, "**", " end"], None, 400)
@example(["```x ", *["word"] * 70, "`**a** "], None, 250)
@example(["a\u0301", *["\u0301"] * 300], None, 40)
def test_what_grows_ends_as_what_is_drawn_at_once(
    words: list[str], data: st.DataObject, most_open: int
) -> None:
    """Whatever was struck out meanwhile, in whatever pieces it came, and wherever it was drawn for
    good."""
    with patch.object(formatting, "_MOST_OPEN", most_open):
        grown, left = GrowingText(16), list(words)
        while left:
            size = data.draw(st.integers(1, 5)) if data else 1
            first = grown.add([Run(word, TEXT) for word in left[:size]], "no")
            assert 0 <= first <= len(grown.rows)
            del left[:size]
        grown.add((), is_over=True)
        text = "".join(words)
        at_once = GrowingText(16)
        at_once.add([Run(text, TEXT)], is_over=True)
    assert cells(grown) == cells(at_once)
    assert grown.text == text


@pytest.mark.parametrize(
    "mark", ["**a ", "a** ", "*a ", "***", "**a *b ", "`", "`a ``b ", "[](", "_a~~", "> ", "x"]
)
@pytest.mark.parametrize("grows", [False, True])
def test_thousands_of_marks_take_few_calls_each(mark: str, grows: bool) -> None:
    def calls(count: int) -> int:
        """How many functions are called, which is the same on every machine."""
        taken = 0

        def step(_frame: FrameType, _event: str, _arg: object) -> None:
            nonlocal taken
            taken += 1

        drawn = GrowingText(80)
        sys.setprofile(step)
        try:
            for _ in range(count // 500 if grows else 0):
                drawn.add([Run(mark * 500, TEXT)], "no")
            drawn.add([] if grows else [Run(mark * count, TEXT)], is_over=True)
        finally:
            sys.setprofile(None)
        assert drawn.text == mark * count
        # Each look of a text is read once and kept.
        assert len({piece.style for row in drawn.rows for piece in row}) < 10
        return taken

    assert calls(4_000) < 500 * 4_000


@given(texts, st.text("a 漢↵", min_size=1, max_size=20))
def test_a_rejected_guess_moves_nothing(words: list[str], guess: str) -> None:
    with_guess, without = GrowingText(16), GrowingText(16)
    for word in words:
        with_guess.add([Run(word, TEXT)], guess)
        without.add([Run(word, TEXT)])
        *above, last = map(text_of, with_guess.rows)
        *expected, end = map(text_of, without.rows)
        assert above == expected
        assert last.startswith(end)


@given(texts)
def test_rows_that_are_not_reported_as_changed_are_as_they_were(words: list[str]) -> None:
    drawn = GrowingText(16)
    for word in words:
        before = [*map(text_of, drawn.rows)]
        first = drawn.add([Run(word, TEXT)], "no")
        assert [*map(text_of, drawn.rows[:first])] == before[:first]


def test_the_margin_of_a_narrow_text_gives_way() -> None:
    drawn = GrowingText(6, IN_CODE)
    drawn.add([Run("abcdefgh", TEXT)])
    assert [*map(text_of, drawn.rows)] == ["abcdef", "gh"]

"""The formatted text of the live view: what is shown, in which ink, also while it grows."""

from __future__ import annotations

import sys
from types import FrameType
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eaglechat.tui.widgets.transcript import formatting, marks
from eaglechat.tui.widgets.transcript.formatting import FormattedText
from eaglechat.tui.widgets.transcript.wrapping import TEXT, Run, Wrapping


def shown(text: str, width: int = 20) -> list[str]:
    drawn = FormattedText(width)
    drawn.end([Run(text, TEXT)], ())
    assert drawn.wrapping.text == text
    return [row.text for row in drawn.wrapping.rows]


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
    drawn = FormattedText(40)
    runs = [Run("**bold ", "guessed"), Run("one** and `co", TEXT), Run("de`", "guessed")]
    drawn.end([*runs, Run("\n# top", TEXT)], ())
    pieces = [piece for row in drawn.wrapping.rows for piece in row.pieces]
    assert [(one.shown.strip(), one.style) for one in pieces if one.shown.strip()] == [
        ("bold", "guessed strong"), ("one", "text strong"), ("and", TEXT), ("co", "text code"),
        ("de", "guessed code"), ("top", "text strong"),
    ]  # fmt: skip


def test_marks_at_the_growing_end_are_taken_to_be_closed_until_the_line_ends() -> None:
    drawn = FormattedText(40)
    drawn.update([Run("some **bo", TEXT), Run("ld", TEXT)])
    assert drawn.wrapping.rows[0].text == "some bold"
    assert drawn.wrapping.rows[0].pieces[-1].style == "text strong"
    drawn.update([Run("\n", TEXT)])
    assert drawn.wrapping.rows[0].text == "some **bold"


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


def cells(drawn: FormattedText) -> list[list[tuple[str, object]]]:
    """The characters of each row, with their styles."""
    return [
        [(char, piece.style) for piece in row.pieces for char in piece.shown]
        for row in drawn.wrapping.rows
    ]


@given(texts, st.data(), st.sampled_from([(400, 2000), (250, 30)]))
@example(["1. **", *[" the word"] * 300, "**", " end"], None, (400, 2000))
@example(["- **a ", *["b* *c ``"] * 300, "**", " end"], None, (400, 2000))
@example(["```x ", *["word"] * 70, "`**a** "], None, (250, 30))
def test_what_grows_ends_as_what_is_drawn_at_once(
    words: list[str], data: st.DataObject, limits: tuple[int, int]
) -> None:
    """Whatever was struck out meanwhile, in whatever pieces it came, and wherever it was drawn for
    good."""
    with patch.object(formatting, "_CUT_FROM", limits[0]), patch.object(marks, "REACH", limits[1]):
        grown, left = FormattedText(16), list(words)
        while left:
            size = data.draw(st.integers(1, 5)) if data else 1
            guess = [Run("no", "rejected", copied=False)]
            first = grown.update([Run(word, TEXT) for word in left[:size]], guess)
            assert 0 <= first <= len(grown.wrapping.rows)
            del left[:size]
        grown.end((), ())
        text = "".join(words)
        at_once = FormattedText(16)
        at_once.end([Run(text, TEXT)], ())
    assert cells(grown) == cells(at_once)
    assert grown.wrapping.text == text


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

        drawn = FormattedText(80)
        sys.setprofile(step)
        try:
            for _ in range(count // 500 if grows else 0):
                drawn.update([Run(mark * 500, TEXT)], [Run("no", "rejected", copied=False)])
            drawn.end([] if grows else [Run(mark * count, TEXT)], ())
        finally:
            sys.setprofile(None)
        assert drawn.wrapping.text == mark * count
        return taken

    assert calls(10_000) < 500 * 10_000


@given(texts, st.text("a 漢↵", min_size=1, max_size=20))
def test_a_rejected_guess_moves_nothing(words: list[str], guess: str) -> None:
    with_guess, without = FormattedText(16), FormattedText(16)
    for word in words:
        with_guess.update([Run(word, TEXT)], [Run(guess, "rejected", copied=False)])
        without.update([Run(word, TEXT)])
        *above, last = [row.text for row in with_guess.wrapping.rows]
        *expected, end = [row.text for row in without.wrapping.rows]
        assert above == expected
        assert last.startswith(end)


@given(texts)
def test_rows_that_are_not_reported_as_changed_are_as_they_were(words: list[str]) -> None:
    drawn = FormattedText(16)
    for word in words:
        before = [row.text for row in drawn.wrapping.rows]
        first = drawn.update([Run(word, TEXT)], [Run("no", "rejected", copied=False)])
        assert [row.text for row in drawn.wrapping.rows[:first]] == before[:first]


def test_the_margin_of_a_narrow_text_gives_way() -> None:
    wrapping = Wrapping(6)
    wrapping.indent("│ ", "faint", now="│ ")
    wrapping.append("abcdefgh", TEXT)
    assert [row.text for row in wrapping.rows] == ["abcdef", "gh"]

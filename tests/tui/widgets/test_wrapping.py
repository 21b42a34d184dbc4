"""Wrapping: rows do not depend on how the text arrived, nothing is lost, nothing is unsafe."""

from __future__ import annotations

import random
import re

import pytest
from rich.cells import cell_len

from eaglechat.tui.widgets.transcript.wrapping import Row, Wrapping
from eaglechat.wire.neutral import neutralise

ALPHABET = [
    *"abcdefgh.,)", " ", " ", " ", "  ", "\n", "\t", "é", "e\u0301", "漢", "字", "、", "。", "ー",
    "한", "👍🏽", "👩\u200d💻", "\u2764\ufe0f", "\u200b", "ก็", "क्षि", "🇩🇪", "\u00a0",
]  # fmt: skip


def wrapped(chunks: list[str], width: int) -> Wrapping:
    wrapping = Wrapping(width)
    for chunk in chunks:
        wrapping.append(chunk, "plain")
    return wrapping


def texts(wrapping: Wrapping) -> list[str]:
    return [row.text for row in wrapping.rows]


def copied_text(row: Row, lines: list[str]) -> str:
    return "".join(lines[row.line][piece.start : piece.stop] for piece in row.pieces)


@pytest.mark.parametrize("seed", range(40))
def test_rows_are_the_same_however_the_text_is_cut_into_tokens(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(rng.choice(ALPHABET) for _ in range(600))
    width = rng.choice([2, 5, 9, 20, 41])
    tokens: list[str] = []
    left = text
    while left:
        size = rng.randint(1, 6)
        tokens.append(left[:size])
        left = left[size:]
    streamed = wrapped(tokens, width)
    assert texts(streamed) == texts(wrapped([text], width))
    assert texts(streamed) == texts(wrapped(list(text), width))
    assert streamed.text == text
    assert all(cell_len(row.text) <= width for row in streamed.rows)


@pytest.mark.parametrize("seed", range(20))
def test_every_shown_character_knows_its_place_in_the_copied_text(seed: int) -> None:
    rng = random.Random(seed)
    wrapping = Wrapping(rng.choice([3, 8, 30]))
    for _ in range(300):
        wrapping.append(rng.choice(ALPHABET), "plain", copied=rng.random() < 0.8)
    lines = wrapping.text.split("\n")
    for row in wrapping.rows:
        shown = "".join(piece.shown for piece in row.pieces if piece.stop > piece.start)
        copied = copied_text(row, lines)
        assert re.sub(r"\s+", "", shown) == re.sub(r"\s+", "", copied)
    assert all(row.start == row.pieces[0].start for row in wrapping.rows if row.pieces)
    places = [(row.line, piece.start) for row in wrapping.rows for piece in row.pieces]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("text", "width", "rows"),
    [
        ("the quick brown fox", 10, ["the quick ", "brown fox"]),
        ("a    b", 3, ["a  ", "b"]),
        ("    if x:\n        y", 12, ["    if x:", "        y"]),
        ("go extraordinarily", 8, ["go ", "extraord", "inarily"]),
        ("one\n\ntwo", 9, ["one", "", "two"]),
        ("a\tb\tc", 20, ["a   b   c"]),
        ("漢字漢字", 5, ["漢字", "漢字"]),
        ("漢字、漢字", 4, ["漢", "字、", "漢字"]),
        ("漢字word", 7, ["漢字", "word"]),
        ("ab e\u0301e\u0301e\u0301", 5, ["ab ", "e\u0301e\u0301e\u0301"]),
        ("漢", 1, ["漢"]),
    ],
)
def test_where_rows_break(text: str, width: int, rows: list[str]) -> None:
    assert texts(wrapped([text], width)) == rows


def test_joined_characters_keep_the_style_of_the_first_only() -> None:
    wrapping = Wrapping(20)
    wrapping.append("e", "accepted")
    wrapping.append("\u0301tude", "plain")
    assert [(piece.shown, piece.style) for piece in wrapping.rows[0].pieces] == [
        ("e\u0301", "accepted"),
        ("tude", "plain"),
    ]


def test_text_that_is_only_shown_is_wrapped_but_not_copied() -> None:
    wrapping = Wrapping(12)
    wrapping.append("the", "accepted")
    wrapping.append(" quack", "rejected", copied=False)
    wrapping.append(" quick\nfox", "correction")
    assert texts(wrapping) == ["the quack ", "quick", "fox"]
    assert wrapping.text == "the quick\nfox"
    assert wrapping.rows[1].pieces[0].start == 4


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("\x1b[2J\x1b]0;title\x07", "␛[2J␛]0;title␇"),
        ("\x9b31m", "\ufffd31m"),
        ("one\r\ntwo", "one\ntwo"),
        ("a\x00b\x7f", "a␀b␡"),
        ("\u202egnp.exe", "\ufffdgnp.exe"),
        ("a\u2028b", "a\nb"),
        ("\ud800", "\ufffd"),
        ("tab\tline\nünïcode 漢字 👩\u200d💻", "tab\tline\nünïcode 漢字 👩\u200d💻"),
    ],
)
def test_unsafe_characters_become_visible(raw: str, safe: str) -> None:
    assert neutralise(raw) == safe


def test_marks_without_end_are_measured_in_pieces() -> None:
    """One piece that grows is measured anew with each mark: 5,000 took 4 s."""
    wrapping = Wrapping(40)
    wrapping.append("a", "plain")
    for _ in range(1000):
        wrapping.append("\u0301", "plain")
    pieces = [piece for row in wrapping.rows for piece in row.pieces]
    assert max(len(piece.shown) for piece in pieces) <= 66
    assert "".join(piece.shown for piece in pieces) == "a" + "\u0301" * 1000

"""Wrapping: rows do not depend on how the text arrived, nothing is lost, nothing is unsafe."""

from __future__ import annotations

import random
import re

import pytest
from rich.cells import cell_len

from eaglechat.tui.widgets.transcript.formatting import PLAIN, GrowingText, Run
from eaglechat.words.neutral import neutralise
from tests.tui.widgets.transcript_app import text_of

ALPHABET = [
    *"abcdefgh.,)", " ", " ", " ", "  ", "\n", "\t", "é", "e\u0301", "漢", "字", "、", "。", "ー",
    "한", "👍🏽", "👩\u200d💻", "\u2764\ufe0f", "\u200b", "ก็", "क्षि", "🇩🇪", "\u00a0",
]  # fmt: skip


def wrapped(chunks: list[str], width: int) -> GrowingText:
    text = GrowingText(width, PLAIN)
    for chunk in chunks:
        text.add([Run(chunk, "plain")])
    return text


def texts(text: GrowingText) -> list[str]:
    return [text_of(row) for row in text.rows]


@pytest.mark.parametrize("seed", range(6))
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
    assert all(cell_len(row) <= width for row in texts(streamed))


@pytest.mark.parametrize("seed", range(5))
def test_every_shown_character_knows_its_place_in_the_copied_text(seed: int) -> None:
    rng = random.Random(seed)
    text = GrowingText(rng.choice([3, 8, 30]), PLAIN)
    for _ in range(900):
        part, copied = rng.choice(ALPHABET), rng.random() < 0.8
        text.add([Run(part, "plain", copied=copied or part == "\n")])
    for row in text.rows:
        shown = "".join(piece.shown for piece in row if piece.stop > piece.start)
        copied = "".join(text.text[piece.start : piece.stop] for piece in row)
        assert re.sub(r"\s+", "", shown) == re.sub(r"\s+", "", copied)
    places = [piece.start for row in text.rows for piece in row]
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
    text = GrowingText(20, PLAIN)
    text.add([Run("e", "accepted")])
    text.add([Run("\u0301tude", "plain")])
    assert [(piece.shown, piece.style) for piece in text.rows[0]] == [
        ("e\u0301", "accepted"),
        ("tude", "plain"),
    ]


def test_text_that_is_only_shown_is_wrapped_but_not_copied() -> None:
    text = GrowingText(12, PLAIN)
    rejected = Run(" quack", "rejected", copied=False)
    text.add([Run("the", "accepted"), rejected, Run(" quick\nfox", "correction")])
    assert texts(text) == ["the quack ", "quick", "fox"]
    assert text.text == "the quick\nfox"
    assert text.rows[1][0].start == 4


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

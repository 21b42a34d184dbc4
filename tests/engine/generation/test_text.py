from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.engine.reply import ReplyText
from eaglechat.engine.templates.dialect import tagged
from eaglechat.wire.records import Part

CHARACTERS = st.sampled_from(["a", "b", "é", "語", "👩‍👩‍👧"]).map(str.encode)


@given(
    st.lists(CHARACTERS | st.binary(max_size=3), max_size=12).map(b"".join),
    st.text("ab語", max_size=3),
    st.lists(st.integers(0, 60), max_size=12).map(sorted),
)
def test_a_reply_is_its_text_before_the_stop_string_however_it_is_cut(
    raw: bytes, stop: str, cuts: list[int]
) -> None:
    """Nothing that is shown is taken back, and what is held back comes once."""
    whole = raw.decode(errors="replace")
    is_stopped = bool(stop) and stop in whole
    wanted = whole.partition(stop)[0] if is_stopped else whole
    text, shown = ReplyText(stop=[stop]), ""
    for start, end in pairwise([0, *cuts, len(raw)]):
        if not text.stopped:
            certain, part = text.push(raw[start:end])
            assert part is Part.ANSWER
            shown += certain
            assert wanted.startswith(shown)
    assert shown + "".join(held for _, held in text.flush()) == wanted
    assert text.stopped is is_stopped
    assert text.flush() == []


@pytest.mark.parametrize(
    ("stop", "pieces", "shown"),
    [
        ([], [b"\xe8", b"\xaa", b"\x9e"], ["", "", "語"]),
        ([], [b"a\xffb", b"\xe8\xaa", b"c"], ["a\ufffdb", "", "\ufffdc"]),
        (["</end>"], [b"text </", b"en", b"d> and more"], ["text ", "", ""]),
        # The first a cannot begin the stop string any more, the other two can.
        (["aab"], [b"xa", b"a", b"a", b"c"], ["x", "", "a", "aac"]),
        (["END", "\n\n", ""], [b"one\n\ntwo END"], ["one"]),
    ],
)
def test_what_is_certain_is_shown_at_once(
    stop: list[str], pieces: list[bytes], shown: list[str]
) -> None:
    text = ReplyText(stop=stop)
    assert [text.push(piece)[0] for piece in pieces] == shown


# --- parts ---


def thought() -> ReplyText:
    return ReplyText(tagged("<think>", "</think>").begin(""))


def test_each_token_belongs_to_the_part_its_text_does() -> None:
    text = thought()
    pieces = [b"<think>", b"\n", b"R", b"</think>", b"\n\n", b"A", b""]

    assert [text.push(piece) for piece in pieces] == [
        ("", None),
        ("", None),
        ("R", Part.REASONING),
        ("", None),
        ("", None),
        ("A", Part.ANSWER),
        ("", Part.ANSWER),
    ]


def test_a_token_that_ends_one_part_and_begins_the_next_leaves_the_beginning_to_the_next() -> None:
    text = thought()
    text.push(b"<think>one")

    assert text.push(b" two</think>A") == (" two", Part.REASONING)
    assert text.push(b" B") == ("A B", Part.ANSWER)
    assert text.flush() == []


def test_what_waits_at_the_end_of_a_reply_keeps_its_part() -> None:
    text = thought()
    text.push(b"<think>one</th")

    assert text.flush() == [(Part.REASONING, "</th")]


def test_a_stop_string_ends_a_reply_in_any_part() -> None:
    text = ReplyText(tagged("<think>", "</think>").begin(""), stop=["END"])

    assert text.push(b"<think>oneENDtwo") == ("one", Part.REASONING)
    assert text.stopped

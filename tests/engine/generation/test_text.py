from __future__ import annotations

import pytest

from eaglechat.engine.reply import ReplyText
from eaglechat.engine.templates.dialect import tagged
from eaglechat.wire.records import Part


def shown(text: ReplyText, *pieces: bytes) -> list[str]:
    """What becomes certain with each piece."""
    found = [text.push(piece) for piece in pieces]
    assert {part for _, part in found} == {Part.ANSWER}
    return [certain for certain, _ in found]


def singly(text: str) -> list[bytes]:
    return [bytes([byte]) for byte in text.encode()]


@pytest.mark.parametrize("character", ["é", "語", "🦅"])
def test_a_character_split_over_tokens_appears_with_its_last_byte(character: str) -> None:
    pieces = singly(character)
    assert shown(ReplyText(), *pieces) == [""] * (len(pieces) - 1) + [character]


def test_a_joined_emoji_keeps_all_its_parts() -> None:
    family = "👩‍👩‍👧"
    assert "".join(shown(ReplyText(), *singly(family))) == family


def test_bytes_that_are_no_utf8_become_replacement_characters_and_the_rest_goes_on() -> None:
    pieces = b"a\xffb", "語".encode()[:2], b"c"
    assert shown(ReplyText(), *pieces) == ["a\ufffdb", "", "\ufffdc"]


def test_what_is_incomplete_at_the_end_is_flushed_once() -> None:
    text = ReplyText(stop=["stop"])
    assert shown(text, b"x st", "語".encode()[:1]) == ["x ", ""]
    assert text.flush() == [(Part.ANSWER, "st\ufffd")]
    assert text.flush() == []
    assert not text.stopped


def test_a_stop_string_split_over_tokens_is_never_shown() -> None:
    text = ReplyText(stop=["</end>"])
    assert shown(text, b"text </", b"en", b"d> and more") == ["text ", "", ""]
    assert text.stopped
    assert text.flush() == []


def test_a_false_start_of_a_stop_string_is_given_back() -> None:
    text = ReplyText(stop=["aab"])
    # The first a cannot begin the stop string any more, the other two can.
    assert shown(text, b"xa", b"a", b"a", b"c") == ["x", "", "a", "aac"]
    assert not text.stopped


def test_the_earliest_of_several_stop_strings_ends_the_text() -> None:
    text = ReplyText(stop=["END", "\n\n", ""])
    assert shown(text, b"one\n\ntwo END") == ["one"]
    assert text.stopped


def test_a_stop_string_may_hold_a_character_of_several_bytes() -> None:
    text = ReplyText(stop=["語!"])
    assert "".join(shown(text, *singly("a 語? 語!"))) == "a 語? "
    assert text.stopped


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

from __future__ import annotations

import pytest

from eaglechat.engine.reply import ReplyText, TextStream
from eaglechat.engine.templates.dialect import tagged
from eaglechat.wire.records import Part


def pushed(stream: TextStream, data: bytes) -> list[str]:
    """What becomes certain with each byte by itself."""
    return [stream.push(bytes([byte])) for byte in data]


@pytest.mark.parametrize("character", ["é", "語", "🦅"])
def test_a_character_split_over_tokens_appears_with_its_last_byte(character: str) -> None:
    data = character.encode()

    assert pushed(TextStream(), data) == [""] * (len(data) - 1) + [character]


def test_a_joined_emoji_keeps_all_its_parts() -> None:
    family = "👩‍👩‍👧"

    assert "".join(pushed(TextStream(), family.encode())) == family


def test_bytes_that_are_no_utf8_become_replacement_characters_and_the_rest_goes_on() -> None:
    stream = TextStream()

    assert stream.push(b"a\xffb") == "a\ufffdb"
    assert stream.push("語".encode()[:2]) == ""
    assert stream.push(b"c") == "\ufffdc"


def test_what_is_incomplete_at_the_end_is_flushed_once() -> None:
    stream = TextStream(stop=["stop"])
    assert stream.push(b"x st") == "x "
    assert stream.push("語".encode()[:1]) == ""

    assert stream.flush() == "st\ufffd"
    assert stream.flush() == ""
    assert not stream.stopped


def test_a_stop_string_split_over_tokens_is_never_shown() -> None:
    stream = TextStream(stop=["</end>"])

    shown = [stream.push(piece) for piece in (b"text </", b"en", b"d> and more")]

    assert shown == ["text ", "", ""]
    assert stream.stopped
    assert stream.flush() == ""


def test_a_false_start_of_a_stop_string_is_given_back() -> None:
    stream = TextStream(stop=["aab"])

    assert stream.push(b"xa") == "x"
    assert stream.push(b"a") == ""
    # The first a cannot begin the stop string any more, the other two can.
    assert stream.push(b"a") == "a"
    assert stream.push(b"c") == "aac"
    assert not stream.stopped


def test_the_earliest_of_several_stop_strings_ends_the_text() -> None:
    stream = TextStream(stop=["END", "\n\n", ""])

    assert stream.push(b"one\n\ntwo END") == "one"
    assert stream.stopped


def test_a_stop_string_may_hold_a_character_of_several_bytes() -> None:
    stream = TextStream(stop=["語!"])

    assert "".join(pushed(stream, "a 語? 語!b".encode()[:-1])) == "a 語? "
    assert stream.stopped


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

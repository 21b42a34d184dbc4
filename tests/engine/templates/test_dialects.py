"""Replies of each dialect in their parts, however their text arrives."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.engine.templates.template import ChatTemplate
from eaglechat.wire.part_stream import Segment
from eaglechat.wire.protocol import Message, Thinking
from eaglechat.wire.records import Part
from tests.engine.templates import dialects
from tests.engine.templates.dialects import CASES, NAMES, Case

TEMPLATES = {name: ChatTemplate(dialects.source(name), bos="<s>", eos="</s>") for name in NAMES}


def parts(template: ChatTemplate, pieces: Iterable[str], thinking: Thinking) -> list[Segment]:
    stream = template.parts(thinking)
    segments = [segment for piece in pieces for segment in stream.push(piece)]
    return [*segments, *stream.flush()]


def text_of(segments: Iterable[Segment], part: Part) -> str:
    return "".join(text for of, text in segments if of is part)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.template}: {case.raw[:40]!r}")
@pytest.mark.parametrize("size", [1, 1000])
def test_a_reply_falls_into_its_parts_in_pieces_of_any_size(case: Case, size: int) -> None:
    pieces = [case.raw[i : i + size] for i in range(0, len(case.raw), size)]

    segments = parts(TEMPLATES[case.template], pieces, case.thinking)

    assert text_of(segments, Part.REASONING).strip() == case.reasoning
    assert text_of(segments, Part.ANSWER).strip() == case.answer


_MARKERS = sorted({m for template in TEMPLATES.values() for m in template.dialect.markers})
_REPLIES = st.lists(st.one_of(st.sampled_from(_MARKERS), st.text(max_size=6)), max_size=12)


@given(st.sampled_from(NAMES), _REPLIES, st.data())
def test_how_a_reply_is_cut_changes_nothing(
    name: str, pieces: list[str], data: st.DataObject
) -> None:
    raw = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    cut = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    whole, in_pieces = (parts(TEMPLATES[name], way, Thinking()) for way in ([raw], cut))

    for part in Part:
        assert text_of(whole, part) == text_of(in_pieces, part)


@given(_REPLIES)
def test_a_template_without_reasoning_loses_no_character(pieces: list[str]) -> None:
    assert text_of(parts(TEMPLATES["plain"], pieces, Thinking()), Part.ANSWER) == "".join(pieces)


@given(st.sampled_from(NAMES), st.text(alphabet="ab <[|\n/]>", max_size=40))
def test_text_without_markers_is_shown_whole(name: str, text: str) -> None:
    segments = parts(TEMPLATES[name], [text], Thinking())

    assert "".join(shown for _, shown in segments).strip() == text.strip()


@pytest.mark.parametrize(
    ("name", "on_off", "efforts"),
    [
        ("switched", True, ()),
        ("forced", False, ()),
        ("harmony", False, ("low", "medium", "high", "max")),
        ("channel", True, ()),
        ("budget", True, ()),
        ("plain", False, ()),
    ],
)
def test_what_a_template_lets_one_choose(name: str, on_off: bool, efforts: tuple[str, ...]) -> None:
    reasoning = TEMPLATES[name].reasoning

    assert (reasoning.on_off, reasoning.efforts) == (on_off, efforts)


def test_a_template_nobody_knows_is_plain_where_the_vocabulary_has_no_tags() -> None:
    control = {"<think>", "</think>"}.__contains__

    assert not ChatTemplate(None, bos="", eos="").dialect.reasons
    assert ChatTemplate(None, bos="", eos="", is_control=control).dialect.opens == "<think>"


def test_reasoning_is_given_in_the_field_that_gpt_oss_reads() -> None:
    """Its template shows that of the last reply alone, which llama-server would not render."""
    said = Message(role="assistant", content="4", reasoning="Two and two.")
    prompt = TEMPLATES["harmony"].render([Message(role="user", content="2 + 2?"), said])
    assert "analysis<|message|>Two and two." in prompt

"""A question of several parts: marks stand for them, and nothing of them is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.chat.recording import TurnPart
from eaglechat.chat.writing.question import (
    Marks,
    composed,
    mark,
    of_file,
    pasted,
    shown,
    text_of,
)
from tests.chat.headless import Headless, saved_chats

LONG = "\n".join(f"line {n}" for n in range(132))
PASTE = TurnPart(LONG, source="paste")
FILE = of_file("notes.md", "# Notes\n```python\nx\n```\n")


def test_only_a_long_paste_is_a_part() -> None:
    assert pasted("\n".join("x" * 20)) is None
    assert pasted(LONG.replace("\n", "\r\n")) == PASTE
    assert mark(PASTE) == "[pasted: 132 lines, ~270 tokens]"


def test_a_file_is_fenced_under_its_name() -> None:
    assert FILE.text == "notes.md:\n````md\n# Notes\n```python\nx\n```\n````"
    assert mark(FILE) == "[notes.md: 45 B, ~12 tokens]"
    assert of_file("a\nb", "x").name == "a\nb"
    assert "\n" not in mark(of_file("a\nb", "x"))


def test_parts_that_look_alike_have_marks_of_their_own() -> None:
    marks = Marks()
    other = TurnPart(LONG.upper(), source="paste")
    text = marks.text([TurnPart("a "), PASTE, TurnPart(" b "), other, PASTE])
    size = "132 lines, ~270 tokens"
    assert text == f"a [pasted: {size}] b [pasted: {size}, no. 2][pasted: {size}]"
    assert marks.parts(text) == (TurnPart("a "), PASTE, TurnPart(" b "), other, PASTE)


PARTS = st.lists(
    st.one_of(
        st.builds(TurnPart, st.text(min_size=1, max_size=20)),
        st.builds(lambda t: TurnPart(t, source="paste"), st.text(min_size=1, max_size=20)),
        st.builds(of_file, st.text(min_size=1, max_size=9), st.text(max_size=20)),
    ),
    max_size=5,
)


@given(PARTS)
def test_a_text_with_marks_stands_for_all_of_it(parts: list[TurnPart]) -> None:
    marks = Marks()
    text = marks.text(parts)
    assert text_of(marks.parts(text)) == text_of(parts)


@given(PARTS)
def test_what_is_asked_has_every_part_whole_and_is_asked_the_same_again(
    parts: list[TurnPart],
) -> None:
    asked = composed(parts)
    assert [p for p in asked if p.source != "typed"] == [p for p in parts if p.source != "typed"]
    assert composed(asked) == asked
    words = "".join(p.text for p in asked if p.source == "typed").split()
    assert "".join(words) == "".join("".join(p.text for p in parts if p.source == "typed").split())


def test_a_file_stands_apart() -> None:
    asked = composed([TurnPart("What does "), FILE, TurnPart(" say? ")])
    assert text_of(asked) == f"What does\n\n{FILE.text}\n\nsay?"
    assert text_of(composed([FILE, PASTE])) == f"{FILE.text}\n\n{LONG}"
    assert shown(asked) == "What does\n\n[notes.md: 45 B, ~12 tokens]\n\nsay?"


def test_a_reopened_question_and_draft_have_their_parts(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    assert chat.session.ask((TurnPart("Look: "), FILE))
    chat.finish()
    assert chat.last_request.messages[-1].content == f"Look:\n\n{FILE.text}"
    chat.session.leave((PASTE, TurnPart(" and more")))
    (saved,) = saved_chats(tmp_path)
    assert saved.turns.path[0].parts[-1] == FILE
    assert saved.unsent == (PASTE, TurnPart(" and more"))
    assert text_of(saved.unsent) == f"{LONG} and more"


@pytest.mark.parametrize("length", [1, 4000])
def test_a_draft_is_on_disk_while_it_is_written(tmp_path: Path, length: int) -> None:
    chat = Headless(tmp_path)
    for _ in range(2):
        chat.session.recorder.save((PASTE, TurnPart("x" * length)))
    (saved,) = saved_chats(tmp_path)
    assert saved.unsent == (PASTE, TurnPart("x" * length))


def test_a_question_that_is_given_back_has_its_parts(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.engine.chat_error = ("prompt", "the prompt is too long")
    assert chat.session.ask((PASTE,))
    chat.finish()
    assert chat.given_back == [LONG]
    (saved,) = saved_chats(tmp_path)
    assert saved.unsent == (PASTE,)

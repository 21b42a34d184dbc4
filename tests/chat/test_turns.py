"""The tree of turns alone; `test_story` changes whole chats in any order."""

from __future__ import annotations

import pytest

from eaglechat.chat.recording import TurnPart
from eaglechat.chat.turns import Question, TurnError, Turns
from eaglechat.wire.protocol import Message
from tests.chat.records import answering


def said(text: str) -> list[TurnPart]:
    return [TurnPart(text)]


def chat(*said_in_turn: str) -> Turns:
    """A chat in one line: question, reply, question, reply ..."""
    turns = Turns()
    for question, reply in zip(said_in_turn[::2], said_in_turn[1::2], strict=True):
        turns.answer(turns.ask(said(question)).id, answering(reply))
    return turns


def test_what_is_sent_is_the_path_to_the_question() -> None:
    turns = chat("one", "1", "two", "2")
    third = turns.ask(said("three"))
    assert turns.messages_to(third.id) == (
        Message(role="user", content="one"),
        Message(role="assistant", content="1"),
        Message(role="user", content="two"),
        Message(role="assistant", content="2"),
        Message(role="user", content="three"),
    )
    assert turns.last == third
    with pytest.raises(TurnError):
        turns.ask(said("four"))


def test_ids_are_not_used_twice_and_may_be_given() -> None:
    turns = Turns()
    turns.add(Question(7, None, ()))
    with pytest.raises(TurnError, match="7"):
        turns.add(Question(7, None, ()))
    turns.delete(7)
    assert turns.ask(said("one")).id == 8

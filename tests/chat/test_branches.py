"""Siblings in a chat: made, counted, stepped through, deleted and brought back."""

from __future__ import annotations

from tests.chat.headless import Headless
from tests.tui.scripted import REPLY


def test_there_is_no_sibling_beyond_the_last(chat: Headless) -> None:
    chat.ask("one")
    reply = chat.session.turns.path[1].id
    assert chat.session.step(reply, 1) is None
    assert "no other version" in chat.said[-1]
    chat.session.answer_again(reply)
    chat.finish()
    again = chat.session.turns.path[1].id
    assert chat.session.step(again, 1) is None
    assert chat.said[-1] == "This is the newest of 2."
    assert chat.session.step(again, -1) == reply


def test_siblings_are_counted_beside_the_first_entry_of_a_turn(chat: Headless) -> None:
    chat.ask("one")
    chat.session.answer_again(chat.session.turns.path[1].id)
    chat.finish()
    places = {entry.key: entry.place for entry in chat.entries if entry.turn}
    question, reply = (turn.id for turn in chat.session.turns.path)
    assert places == {f"turn {question}": None, f"turn {reply}": (2, 2)}


def test_an_edit_without_an_answer_goes_back_to_what_it_was_a_wording_of(chat: Headless) -> None:
    chat.ask("one")
    first = chat.session.turns.path[0].id
    chat.engine.budget = 0
    chat.session.edit(first, "eins")
    chat.session.stop()
    chat.finish()
    assert (chat.given_back, chat.beside) == (["eins"], [first])
    assert chat.texts == ["one", REPLY]

"""What the context holds, what leaves next, and the warning before it does."""

from __future__ import annotations

from pathlib import Path

import msgspec

from eaglechat.chat.recording import TurnPart
from eaglechat.words.context import ContextUse, TurnLength, context_use, in_words, warning
from tests.chat.headless import Headless, saved_chats

DRAFT = (TurnPart("x" * 400),)


def use(used: int, unsent: int, *turns: TurnLength) -> ContextUse:
    return ContextUse(n_ctx=800, used=used, unsent=unsent, wanted=100, turns=turns)


FIRST = TurnLength("first?", 300, True, True)
GONE = TurnLength("first?", 300, True, False)
SECOND = TurnLength("second?", 300, True, True)


def test_turns_are_measured_by_what_the_engine_reported(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("one?")
    chat.ask("two?")
    found = context_use(chat.session, DRAFT)
    ends = [chat.session.turns.path[place].recording.rounds[-1].n_past for place in (1, 3)]  # type: ignore[union-attr]
    assert [turn.tokens for turn in found.turns] == [ends[0], ends[1] - ends[0]]
    assert all(turn.is_measured and turn.is_in for turn in found.turns)
    assert (found.n_ctx, found.used, found.unsent) == (8192, ends[1], 100)
    assert found.room == 8192 - ends[1] - 100
    assert warning(found) == ""
    assert "This includes about 100 tokens that you have typed." in in_words(found)
    assert "two?" in in_words(found)


def test_only_what_the_next_question_follows_is_counted(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("one?")
    chat.ask("two?")
    first, second = (context_use(chat.session, ()).turns[place].tokens for place in (0, 1))
    question = chat.session.turns.path[2].id
    chat.session.delete(question)
    assert context_use(chat.session, ()).used == first
    chat.session.undo_delete()
    assert context_use(chat.session, ()).used == first + second
    edited = context_use(chat.session, (), question)
    assert (edited.used, [turn.title for turn in edited.turns]) == (first, ["one?"])


def test_each_turn_has_a_line_in_80_columns(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.engine.turns_in_context = 1
    chat.ask("why is the sky so blue, and blue alone, and " * 3)
    chat.ask("two?")
    found = context_use(chat.session, ())
    gone = in_words(found).splitlines()[-2]
    assert gone.endswith("why is the sky so blue, and blue alone,…  (has left)")
    assert len(gone) <= 66
    assert [turn.is_in for turn in found.turns] == [False, True]
    assert found.leaves is not None
    assert found.leaves.title == "two?"


def test_the_warning_comes_before_turns_leave_and_once() -> None:
    assert warning(use(600, 100, FIRST, SECOND)) == ""
    assert "pushes the oldest turns out, “first?” first" in warning(use(601, 100, FIRST, SECOND))
    assert warning(use(601, 100, GONE, SECOND)) == ""
    assert warning(use(601, 100)) == ""


def test_a_question_that_does_not_fit_is_said_each_time() -> None:
    for turns in ((), (FIRST,), (GONE, SECOND)):
        assert warning(use(0, 701, *turns)).startswith("About 701 tokens in a context of 800: ")


def test_without_models_there_is_no_context() -> None:
    nothing = ContextUse(n_ctx=0, used=0, unsent=9999, wanted=0, turns=())
    assert warning(nothing) == ""
    assert "No models" in in_words(nothing)


def test_a_chat_from_a_larger_context_fills_a_smaller_one_and_no_more(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    for question in ("one", "two", "three"):
        chat.ask(question)
    before = chat.session.n_past
    chat.leave()
    chat.session.info = msgspec.structs.replace(chat.info, n_ctx=before // 2)
    chat.session.open(*saved_chats(tmp_path))

    assert chat.session.n_past == before // 2
    use = context_use(chat.session, ())
    assert (use.used, use.room) == (before // 2, 0)

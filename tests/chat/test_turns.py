"""The tree of turns, without a screen, a file or an engine."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eaglechat.chat.recording import TurnPart
from eaglechat.chat.turns import Question, Reply, TurnError, Turns
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


def step(turns: Turns, id: int, by: int) -> int:
    """Choose the sibling `by` positions later, at most the last or first; return its id."""
    siblings = turns.siblings(id)
    chosen = siblings[min(max(siblings.index(id) + by, 0), len(siblings) - 1)]
    turns.choose(chosen)
    return chosen


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


class TreeMachine(RuleBasedStateMachine):
    """Any order of operations leaves a tree in which every question was or is being answered, and
    the path that a walk from the root finds. It is looked at only now and then: `Turns` keeps what
    it has walked."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns()
        self.seen_ids: set[int] = set()
        self.expected: dict[int, str] = {}
        self.deleted: dict[int, tuple[bool, dict[int, str]]] = {}
        self.chosen: dict[int | None, int] = {}

    def pick(self, data: st.DataObject, kind: type[Question | Reply]) -> int:
        return data.draw(st.sampled_from([t.id for t in self.turns if isinstance(t, kind)]))

    def keep(self, turn: Question | Reply) -> None:
        assert turn.id not in self.seen_ids
        self.seen_ids.add(turn.id)
        self.expected[turn.id] = turn.text
        self.choose(turn.id)

    def choose(self, id: int) -> None:
        for turn in self.turns.path_to(id):
            self.chosen[turn.parent] = turn.id

    def answer_to(self, question: int) -> None:
        self.keep(self.turns.answer(question, answering(f"reply to {question}")))

    @rule()
    def ask(self) -> None:
        question = self.turns.ask(said("question"))
        self.keep(question)
        self.answer_to(question.id)

    @precondition(lambda self: len(self.turns))
    @rule(data=st.data())
    def answer_again(self, data: st.DataObject) -> None:
        self.answer_to(self.pick(data, Question))

    @precondition(lambda self: len(self.turns))
    @rule(data=st.data())
    def edit(self, data: st.DataObject) -> None:
        edited = self.turns.edit(self.pick(data, Question), said("edited"))
        self.keep(edited)
        self.answer_to(edited.id)

    @precondition(lambda self: len(self.turns))
    @rule(data=st.data(), by=st.integers(-2, 2))
    def step(self, data: st.DataObject, by: int) -> None:
        turn = data.draw(st.sampled_from(list(self.turns)))
        self.choose(step(self.turns, turn.id, by))

    @precondition(lambda self: len(self.turns))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        turn = data.draw(st.sampled_from(list(self.turns)))
        gone = {t.id for t in self.turns if turn in self.turns.path_to(t.id)}
        places = {t.id: self.turns.siblings(t.id).index(t.id) for t in self.turns}
        root = self.turns.delete(turn.id)
        assert root.id in {turn.id, turn.parent}
        was_chosen = self.chosen.get(root.parent) == root.id
        self.deleted[root.id] = was_chosen, {id: self.expected.pop(id) for id in {*gone, root.id}}
        if was_chosen:
            del self.chosen[root.parent]
            if left := self.turns.beside(root):
                self.chosen[root.parent] = left[max(places[root.id] - 1, 0)]

    @precondition(lambda self: self.deleted)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from([*self.deleted]))
        try:
            root = self.turns.restore(id)
        except TurnError:
            return
        was_chosen, texts = self.deleted.pop(id)
        self.expected |= texts
        if was_chosen or root.parent not in self.chosen:
            self.chosen[root.parent] = id

    @rule()
    def look(self) -> None:
        path, walked = self.turns.path, list[int]()
        while (id := self.chosen.get(walked[-1] if walked else None)) is not None:
            walked.append(id)
        assert [turn.id for turn in path] == walked
        assert {turn.id for turn in self.turns if self.turns.is_chosen(turn.id)} == {*walked}
        assert bool(path) == bool(len(self.turns))
        if path:
            assert isinstance(path[-1], Reply)
            assert not self.turns.is_followed(path[-1].id)

    def teardown(self) -> None:
        self.look()

    @invariant()
    def nothing_else_is_lost(self) -> None:
        assert {turn.id: turn.text for turn in self.turns} == self.expected

    @invariant()
    def roles_alternate_and_parents_come_first(self) -> None:
        before: dict[int, Question | Reply] = {}
        for turn in self.turns:
            parent = before.get(turn.parent) if turn.parent is not None else None
            assert isinstance(parent, Reply if isinstance(turn, Question) else Question) or (
                turn.parent is None and isinstance(turn, Question)
            )
            siblings = self.turns.siblings(turn.id)
            assert turn.id in siblings
            # Whatever was deleted and restored between them.
            assert [*siblings] == sorted(siblings)
            before[turn.id] = turn


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=60, stateful_step_count=30)

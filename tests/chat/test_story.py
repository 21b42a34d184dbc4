"""Whatever is done with chats, in any order, and whenever the app is killed: what is kept tells the
same story as a plain model of it, and what was deleted or typed and removed is nowhere."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import ascii_lowercase

import pytest

from eaglechat.chat.turns import Reply, Turns
from eaglechat.chat.writing.question import typed
from tests.chat.headless import Headless
from tests.chat.home import Home


@dataclass(frozen=True)
class Said:
    """A turn: a question, or the reply to one."""

    parent: int | None
    text: str
    is_reply: bool


@dataclass
class Model:
    """What a chat has to be."""

    turns: dict[int, Said] = field(default_factory=dict)
    chosen: dict[int | None, int] = field(default_factory=dict)
    unsent: str = ""
    title: str = ""
    pinned: bool = False
    undo: list[tuple[int, dict[int, Said]]] = field(default_factory=list)
    """Root and turns of each deleted branch that can be restored."""

    def children(self, parent: int | None) -> list[int]:
        return sorted(id for id, turn in self.turns.items() if turn.parent == parent)

    @property
    def path(self) -> list[int]:
        path: list[int] = []
        while (id := self.chosen.get(path[-1] if path else None)) is not None:
            path.append(id)
        return path

    def add(self, id: int, turn: Said) -> None:
        self.turns[id] = turn
        self.choose(id)

    def choose(self, id: int) -> None:
        at: int | None = id
        while at is not None:
            self.chosen[self.turns[at].parent] = at
            at = self.turns[at].parent

    def delete(self, id: int) -> None:
        turn = self.turns[id]
        if turn.is_reply and len(self.children(turn.parent)) == 1:
            assert turn.parent is not None
            id, turn = turn.parent, self.turns[turn.parent]
        siblings = self.children(turn.parent)
        branch = {id: turn}
        for other, one in sorted(self.turns.items()):
            if one.parent in branch:
                branch[other] = one
        self.turns = {one: turn for one, turn in self.turns.items() if one not in branch}
        if self.chosen.get(turn.parent) == id:
            del self.chosen[turn.parent]
            if len(siblings) > 1:
                place = siblings.index(id)
                siblings.remove(id)
                self.chosen[turn.parent] = siblings[max(place - 1, 0)]
        self.undo.append((id, branch))

    def restore(self) -> None:
        root, branch = self.undo.pop()
        self.turns |= branch
        self.chosen[branch[root].parent] = root

    @property
    def row(self) -> tuple[str, int, bool]:
        path = self.path
        title = self.title or (self.turns[path[0]].text if path else self.unsent)
        return title, len(path), self.pinned

    @property
    def words(self) -> set[str]:
        """Every word that is in it."""
        texts = [self.title, self.unsent, *(turn.text for turn in self.turns.values())]
        return {word for text in texts for word in text.split()}

    @property
    def story(self) -> list[tuple[object, ...]]:
        path = self.path
        return [(id, t.parent, t.text, id in path) for id, t in sorted(self.turns.items())]


def story(turns: Turns) -> list[tuple[object, ...]]:
    path = {turn.id for turn in turns.path}
    return sorted((turn.id, turn.parent, turn.text, turn.id in path) for turn in turns)


class Story:
    """One chat is open at a time. Every step is a method below."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.home = Home(folder)
        self.log: list[str] = []
        self.models: dict[str, Model] = {}
        """By the name of the chat; the open one only when it is left."""
        self.trashed: list[tuple[str, Model]] = []
        self.said: set[str] = set()
        """Every word that was written or typed in any chat."""
        self.gone: set[str] = set()
        """Those that must be in no file."""
        self.begin(None)

    def step(self) -> None:
        """Do something that can be done now."""
        steps = [self.ask, self.ask_and_stop_at_once, self.type, self.undo, self.new, self.restore]
        if self.model.turns:
            steps += [self.ask, self.edit, self.answer_again, self.go_on, self.choose, self.delete]
            steps += [self.delete, self.undo, self.rename, self.pin, self.kill, self.search]
        if self.models:
            steps += [self.reopen, self.reopen, self.rename_another, self.pin_another, self.trash]
        step = self.random.choice(steps)
        self.log.append(step.__name__)
        step()

    def begin(self, name: str | None) -> None:
        self.chat: Headless = self.home.open(name)
        self.model = self.models.pop(name) if name else Model()

    @property
    def name(self) -> str:
        return self.chat.session.chat.name

    def words(self, what: str) -> str:
        # The words of an index share their beginnings with their neighbours.
        one, other = ("".join(self.random.choices(ascii_lowercase, k=8)) for _ in range(2))
        text = f"{one}{what} {other}{what}"
        self.said.update(text.split())
        return text

    def perhaps(self, what: str) -> str:
        return self.random.choice(["", self.words(what)])

    def turn(self, is_reply: bool | None = None) -> int:
        turns = self.model.turns
        return self.random.choice([i for i in turns if is_reply in (None, turns[i].is_reply)])

    def take(self) -> None:
        """The last turn of the path is new: take its text as the session has it."""
        question, reply = self.chat.session.turns.path[-2:]
        assert self.chat.engine.reply.startswith(reply.text)
        assert reply.text
        if question.id not in self.model.turns:
            self.model.add(question.id, Said(question.parent, question.text, is_reply=False))
            self.model.unsent = ""
        self.model.add(reply.id, Said(question.id, reply.text, is_reply=True))

    def answered(self) -> None:
        """The reply is written to its end, or stopped before."""
        rounds = self.random.choice([None, 1, 2])
        if rounds is not None:
            self.chat.rounds(rounds)
            self.chat.save()
            self.model.unsent = ""
            self.chat.session.stop()
        self.chat.finish()
        self.take()

    def asks(self) -> str:
        self.chat.engine.budget = 0
        self.chat.engine.reply = self.words("reply") + " and so on to the end of it"
        return self.words("question")

    # In the open chat

    def ask(self) -> None:
        assert self.chat.begin(self.asks())
        self.answered()

    def edit(self) -> None:
        assert self.chat.session.edit(self.turn(is_reply=False), typed(self.asks()))
        self.answered()

    def answer_again(self) -> None:
        self.asks()
        assert self.chat.session.answer_again(self.turn())
        self.answered()

    def go_on(self) -> None:
        last = self.model.path[-1]
        self.chat.engine.reply = self.words("more") + " and the rest"
        if self.chat.session.continue_reply(last):
            self.chat.finish()
            text = self.chat.session.turns.reply(last).text
            self.model.turns[last] = replace(self.model.turns[last], text=text)

    def ask_and_stop_at_once(self) -> None:
        question = self.asks()
        assert self.chat.begin(question)
        self.chat.session.stop()
        self.chat.finish()
        assert self.chat.given_back[-1] == question
        self.model.unsent = question

    def choose(self) -> None:
        id = self.turn()
        assert self.chat.session.choose(id)
        if id not in self.model.path:
            self.model.choose(id)

    def delete(self) -> None:
        id = self.turn()
        assert self.chat.session.delete(id)
        self.model.delete(id)

    def undo(self) -> None:
        restored = self.chat.session.undo_delete()
        assert (restored is not None) == bool(self.model.undo)
        if self.model.undo:
            self.model.restore()

    def type(self) -> None:
        self.model.unsent = self.perhaps("typed")
        self.chat.save(self.model.unsent)

    def rename(self) -> None:
        self.model.title = self.perhaps("title")
        self.home.store.rename(self.name, self.model.title)

    def pin(self) -> None:
        self.model.pinned = not self.model.pinned
        self.home.store.pin(self.name, self.model.pinned)

    # From one chat to another

    def leave(self, typed: str) -> None:
        self.model.unsent, name = typed, self.name
        self.chat.leave(typed)
        self.chat.session.close()
        self.end(name)

    def end(self, name: str) -> None:
        """The chat is left, and nothing can be undone in it."""
        model = self.model
        model.undo.clear()
        # Another turn may get the number of a turn that is gone.
        model.chosen = {parent: id for parent, id in model.chosen.items() if id in model.turns}
        if model.turns or model.unsent or model.title:
            self.models[name] = model
        self.forget()

    def forget(self) -> None:
        """Nothing that is in no chat can come back."""
        kept = [*self.models.values(), *(model for _, model in self.trashed)]
        self.gone = self.said.difference(*(model.words for model in kept))

    def new(self) -> None:
        self.leave(self.perhaps("typed"))
        self.begin(None)

    def reopen(self) -> None:
        name = self.random.choice([*self.models])
        self.leave("")
        self.begin(name)
        assert "".join(part.text for part in self.chat.session.chat.unsent) == self.model.unsent

    def kill(self) -> None:
        rounds = self.random.randint(0, 2)
        question = self.asks()
        assert self.chat.begin(question)
        self.model.unsent = question
        if rounds:
            self.chat.rounds(rounds)
            self.model.unsent = self.words("typed")
            self.chat.save(self.model.unsent)
            unsent = self.model.unsent
            self.take()
            self.model.unsent = unsent
        name = self.name
        self.home.kill(self.chat)
        # What was deleted before is gone once the chat is opened again.
        self.end(name)
        self.begin(name)
        assert story(self.chat.session.turns) == self.model.story
        self.chat.save(self.model.unsent)

    # To chats that are not open

    def rename_another(self) -> None:
        name = self.random.choice([*self.models])
        self.gone.update(self.models[name].title.split())
        self.models[name].title = self.perhaps("title")
        self.home.store.rename(name, self.models[name].title)
        if not any(self.models[name].row[:2]):
            del self.models[name]

    def pin_another(self) -> None:
        name = self.random.choice([*self.models])
        self.models[name].pinned = not self.models[name].pinned
        self.home.store.pin(name, self.models[name].pinned)

    def trash(self) -> None:
        name = self.random.choice([*self.models])
        self.home.store.delete(name)
        self.trashed.append((name, self.models.pop(name)))

    def restore(self) -> None:
        restored = self.home.store.restore()
        assert restored == (self.trashed[-1][0] if self.trashed else None)
        if restored:
            name, self.models[name] = self.trashed.pop()

    # What must hold

    def kept(self) -> dict[str, Model]:
        """Every chat that is in the list, by its name."""
        models = {**self.models, self.name: self.model}
        return {name: model for name, model in models.items() if any(model.row[:2])}

    def the_list_is_right(self) -> None:
        rows = self.home.rows()
        kept = {name: model.row for name, model in self.kept().items()}
        assert {name: about for name, *about in rows} == {n: [*row] for n, row in kept.items()}
        assert [pinned for *_, pinned in rows] == sorted((row[3] for row in rows), reverse=True)

    def what_is_kept_is_right(self) -> None:
        for name, model in self.kept().items():
            saved = self.home.store.read(name)
            assert story(saved.turns) == model.story
            assert (saved.title, saved.pinned) == (model.title, model.pinned)
            for turn in saved.turns:
                if isinstance(turn, Reply):
                    assert turn.recording.rounds
                    assert turn.text == model.turns[turn.id].text

    def search(self) -> None:
        places = {
            word: (name, id)
            for name, model in self.kept().items()
            for id, turn in model.turns.items()
            for word in turn.text.split()[:1]
        }
        if places:
            word = self.random.choice(sorted(places))
            assert places[word] in self.home.found(word)
        for word in sorted(self.gone)[-3:]:
            assert not self.home.found(word)

    def what_is_gone_is_in_no_file(self) -> None:
        content = self.home.bytes()
        assert not [word for word in self.gone if word[3:].encode() in content]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_tells_the_same_story_as_a_model_of_it(tmp_path: Path, seed: int) -> None:
    story = Story(tmp_path, seed)
    try:
        for number in range(100):
            story.step()
            story.the_list_is_right()
            if number % 3 == 0:
                story.what_is_kept_is_right()
                story.what_is_gone_is_in_no_file()
    except Exception as error:
        raise AssertionError(f"after {story.log}") from error
    story.chat.leave()

"""Whatever is done in a chat, and whenever it is killed: its file tells the same story."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eaglechat.chat.conversation.turns import Question, Reply, Turns
from eaglechat.chat.history.listing import summarise
from eaglechat.chat.history.saved_chat import SavedChat, read_chat
from tests.chat.headless import Headless


def story(turns: Turns) -> list[tuple[object, ...]]:
    """Every turn, and which turns are chosen."""
    path = {turn.id for turn in turns.path}
    return [(turn.id, turn.parent, turn.role, turn.text, turn.id in path) for turn in turns]


class ChatMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.chat = self.begin(None)

    def teardown(self) -> None:
        self.chat.session.leave("")
        shutil.rmtree(self.folder)

    def begin(self, saved: SavedChat | None) -> Headless:
        chat = Headless(self.folder, saved)
        chat.engine.reply = "one two three four five six seven"
        return chat

    @property
    def turns(self) -> Turns:
        return self.chat.session.turns

    @property
    def file(self) -> Path:
        return self.chat.session.recorder.file

    def pick(self, data: st.DataObject, *kinds: type[Question | Reply]) -> int:
        return data.draw(st.sampled_from([t.id for t in self.turns if isinstance(t, kinds)]))

    def end(self, data: st.DataObject) -> None:
        """The reply is written to its end, or stopped before."""
        rounds = data.draw(st.none() | st.integers(0, 2))
        if rounds is not None:
            self.chat.rounds(rounds)
            self.chat.session.save("typed")
            self.chat.session.stop()
        self.chat.finish()

    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        self.chat.session.ask("question")
        self.end(data)

    @precondition(lambda self: len(self.turns))
    @rule(data=st.data())
    def answer_again(self, data: st.DataObject) -> None:
        self.chat.session.answer_again(self.pick(data, Question, Reply))
        self.end(data)

    @precondition(lambda self: len(self.turns))
    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        if self.chat.session.continue_reply(self.turns.path[-1].id):
            self.end(data)

    @precondition(lambda self: len(self.turns))
    @rule(data=st.data())
    def edit(self, data: st.DataObject) -> None:
        self.chat.session.edit(self.pick(data, Question), "edited")
        self.end(data)

    @precondition(lambda self: len(self.turns))
    @rule(data=st.data(), by=st.integers(-1, 1))
    def step(self, data: st.DataObject, by: int) -> None:
        self.chat.session.step(self.pick(data, Question, Reply), by)

    @precondition(lambda self: len(self.turns))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.chat.session.delete(self.pick(data, Question, Reply))

    @rule()
    def undo_delete(self) -> None:
        self.chat.session.undo_delete()

    @precondition(lambda self: len(self.turns))
    @rule(data=st.data())
    def delete_and_undo(self, data: st.DataObject) -> None:
        def pictured() -> list[tuple[object, ...]]:
            return sorted(story(self.turns), key=lambda turn: turn[0])

        before = pictured()
        self.chat.session.delete(self.pick(data, Question, Reply))
        self.chat.session.undo_delete()
        assert pictured() == before

    @precondition(lambda self: len(self.turns))
    @rule()
    def leave_and_reopen(self) -> None:
        before, file = story(self.turns), self.file
        self.chat.session.leave("typed")
        self.chat = self.begin(read_chat(file))
        assert story(self.turns) == before
        assert self.chat.session.unsent[0].text == "typed"

    @precondition(lambda self: len(self.turns))
    @rule()
    def kill_in_mid_reply(self) -> None:
        """What the file says while a reply is written is what another start of the app finds."""
        self.chat.session.ask("killed")
        self.chat.rounds(2)
        self.chat.session.save("")
        copy = self.folder / "copy.jsonl"
        shutil.copyfile(self.file, copy)
        assert story(read_chat(copy).turns) == story(self.turns)
        self.chat.finish()

    @invariant()
    def the_file_has_it_all(self) -> None:
        if self.file.exists():
            saved = read_chat(self.file)
            assert story(saved.turns) == story(self.turns)
            assert summarise(self.file).messages == len(self.turns.path)


TestChat = ChatMachine.TestCase
TestChat.settings = settings(max_examples=20, stateful_step_count=12)


def test_what_is_deleted_or_typed_and_removed_is_gone_when_the_chat_is_left(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.engine.reply = "the reply with a secret"
    chat.session.save("my pass")
    chat.session.save("my password is hunter2")
    chat.session.save("")
    chat.ask("the first question")
    chat.ask("a question about a tumour")
    first, _, second, _ = chat.session.turns.path
    chat.session.edit(second.id, "another question")
    chat.finish()
    chat.session.delete(second.id)
    chat.session.choose(first.id)
    chat.session.save("hunter2 once more")
    before = story(chat.session.turns)
    file = chat.session.recorder.file
    assert b"hunter2" in file.read_bytes()

    # After a crash, as soon as it is opened again. The first program still has its file locked.
    file = Path(shutil.copy(file, tmp_path / "crashed.jsonl"))
    mode = file.stat().st_mode
    crashed = Headless(tmp_path, read_chat(file))
    raw = file.read_bytes()
    assert raw.count(b"hunter2") == 1
    assert b"tumour" not in raw
    assert story(crashed.session.turns) == before

    chat = crashed
    for turn in [*chat.session.turns.path][:1]:
        chat.session.delete(turn.id)
    chat.session.leave("what stays")
    raw = file.read_bytes()
    assert not any(word in raw for word in (b"hunter2", b"tumour", b"secret", b"question about"))
    assert read_chat(file).unsent_text == "what stays"
    assert file.stat().st_mode == mode

    Headless(tmp_path, read_chat(file)).session.leave("")
    assert not file.exists()

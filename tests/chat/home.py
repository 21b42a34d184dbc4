"""A home folder with chats in it, as one start of the app after another finds them."""

from __future__ import annotations

from pathlib import Path

from eaglechat.chat.recorder import ChatRecorder
from eaglechat.chat.recording import TurnPart
from eaglechat.chat.saved_chat import new_chat
from eaglechat.chat.store import ChatStore
from eaglechat.chat.turns import Reply
from eaglechat.hub.local.pairs import Pair
from tests.chat.headless import Headless, store_in
from tests.chat.records import answering

PAIR = Pair("pair", Path("/t.gguf"), Path("/d.gguf"), "files")


class Home:
    """Chats go by their names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.store = store_in(folder)

    def open(self, name: str | None = None) -> Headless:
        """A chat in an app of its own; None: a new one."""
        return Headless(self._folder, None if name is None else self.store.read(name))

    def kill(self, chat: Headless) -> None:
        """What is left of an app that was killed: what it wrote. The operating system takes its
        locks and files."""
        recorder = chat.session.recorder
        if recorder._db is not None:
            recorder._db.close()
        if recorder._lock is not None:
            recorder._lock.release(force=True)
        chat.session.close()

    def rows(self) -> list[tuple[str, str, int, bool]]:
        """Name, title, number of messages and pin of each chat in the list."""
        return [(row.name, row.title, row.messages, row.pinned) for row in self.store.listed()]

    def found(self, words: str) -> set[tuple[str, int]]:
        """Chat and turn of each passage with these words."""
        return {(hit.chat.name, hit.turn) for hit in self.store.find(words)}

    def bytes(self) -> bytes:
        """The content of all files."""
        return b"".join(one.read_bytes() for one in self._folder.rglob("*") if one.is_file())


def fresh(store: ChatStore) -> ChatRecorder:
    return ChatRecorder(store, new_chat(PAIR))


def write_chat(store: ChatStore, *said: str) -> str:
    """The name of a chat of questions and replies in turn, the last of which may be open."""
    recorder = fresh(store)
    turns = recorder.chat.turns
    for text in said:
        last = turns.last
        if last is None or isinstance(last, Reply):
            turns.ask([TurnPart(text)])
        else:
            turns.answer(last.id, answering(text))
    recorder.keep()
    recorder.left(())
    return recorder.chat.name

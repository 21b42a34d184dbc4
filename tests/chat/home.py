"""A home folder with chats in it, as one start of the app after another finds them."""

from __future__ import annotations

from pathlib import Path

from eaglechat.chat.history.folder import ChatFolder, pin, rename
from eaglechat.chat.history.saved_chat import SavedChat, read_chat
from tests.chat.headless import Headless


class Home:
    """Chats go by their names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._chats = ChatFolder(folder / "chats")

    def open(self, name: str | None = None) -> Headless:
        """A chat in an app of its own; None: a new one."""
        return Headless(self._folder, None if name is None else self.read(name))

    def kill(self, chat: Headless) -> None:
        """What is left of an app that was killed: what it wrote."""
        stream = chat.session.recorder._log._stream
        if stream is not None:
            stream.close()
        chat.session.close()

    def name_of(self, chat: Headless) -> str:
        return chat.session.recorder.file.stem

    def rows(self) -> list[tuple[str, str, int, bool]]:
        """Name, title, number of messages and pin of each chat in the list."""
        listed = [*self._chats.listed()][-1]
        return [(row.file.stem, row.title, row.messages, row.pinned) for row in listed]

    def found(self, words: str) -> set[tuple[str, int]]:
        """Chat and turn of each passage with these words."""
        list(self._chats.read())
        return {(hit.chat.file.stem, hit.turn) for hit in self._chats.find(words) or []}

    def read(self, name: str) -> SavedChat:
        return read_chat(self._file(name))

    def rename(self, name: str, title: str) -> None:
        rename(self._file(name), title)

    def pin(self, name: str, pinned: bool) -> None:
        pin(self._file(name), pinned)

    def trash(self, name: str) -> None:
        self._chats.trash.take(self._file(name))

    def restore(self) -> str | None:
        file = self._chats.trash.restore(self._chats.directory)
        return file.stem if file else None

    def bytes(self) -> bytes:
        """The content of all files."""
        return b"".join(one.read_bytes() for one in self._folder.rglob("*") if one.is_file())

    def _file(self, name: str) -> Path:
        return self._chats.directory / f"{name}.jsonl"

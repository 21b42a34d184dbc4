"""Writes an open chat to the store while it goes on.

Whoever changes the chat calls `keep`, which writes what the store lacks of it, in one transaction.
What cannot be written is written by a later call.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from eaglechat.chat.packing import encodable, pack
from eaglechat.chat.saved_chat import SavedChat, new_name
from eaglechat.chat.store import ChatStore, ReplyRecord, release, transaction
from eaglechat.chat.turns import Question, Reply, Turn, TurnId
from eaglechat.chat.writing.question import QuestionParts
from eaglechat.wire.records import Part

if TYPE_CHECKING:
    from filelock import FileLock

_ROUNDS_OF_A_PIECE = 256
"""Rounds are packed by so many: while a reply is written, only the last piece is packed again."""


class ChatRecorder:
    def __init__(self, store: ChatStore, chat: SavedChat) -> None:
        """`chat` is what is open; it may change meanwhile. One that was read from the store is
        opened for this program alone; if another program has it open, a copy is."""
        self._store, self.chat = store, chat
        self._db: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._owner = uuid.uuid4().hex
        self._lock: FileLock | None = None
        self._has_removed = False
        self.running: Reply | None = None
        """The reply that is being written."""
        self.is_copy = False
        """Another program has the chat open: this is a new one, with the same beginning."""
        self.is_behind = False
        """Some of the chat could not be written: leaving it now loses that."""
        self._kept: object = None
        """The chat's `_state` when it was read or written."""
        self._whole: set[TurnId] = set()
        """The turns that the store has whole."""
        if chat.revision:
            self._was_read()
            # An error is reported by the first call that writes.
            with suppress(OSError):
                self._claim()

    def reader(self) -> Callable[[], SavedChat]:
        """A function that reads the chat, in any thread. It raises OSError."""
        return (lambda: self.chat) if self.is_behind else partial(self._store.read, self.chat.name)

    def save(self, unsent: QuestionParts) -> None:
        """`unsent` is in the prompt; to be called about once a second."""
        self.chat.unsent = unsent
        self.keep()

    def left(self, unsent: QuestionParts) -> None:
        self.save(unsent)
        if self._db is not None and self.chat.revision:
            with suppress(OSError), self._store.translated():
                with transaction(self._db):
                    frees = "UPDATE chat SET owner = '' WHERE name = ? AND owner = ?"
                    self._db.execute(frees, (self.chat.name, self._owner))
                self._store.purge(self._db, words=self._has_removed)
        self._close()
        if self._lock is not None:
            release(self._lock)

    def keep(self) -> None:
        """Write what the store does not have."""
        state = self._state()
        if self.running is not None:
            self._whole.discard(self.running.id)
        is_new = not self.chat.revision and not _is_listed(_columns(self.chat, self.running))
        if (is_new or state == self._kept) and not self.is_behind:
            return
        try:
            with self._store.translated():
                db = self._connection()
                with transaction(db):
                    whole = self.write(db, self._held())
        except OSError as error:
            if not self.is_behind:
                why = error.strerror or error
                said = f"This chat cannot be saved to {self._store.file}: {why}."
                self._store.say(f"{said} Retrying every second.")
            self.is_behind = True
            # The next call opens the file anew: it may be another one by then.
            self._close()
            return
        self.is_behind = False
        self.chat.revision += 1
        self._kept, self._whole = state, whole

    def _was_read(self) -> None:
        """The chat is as the store has it."""
        self._kept = self._state()
        # Of what a killed program was writing, the store has the rounds alone.
        cut_off = {t.id for t in self.chat.turns if isinstance(t, Reply) and not t.recording.end}
        self._whole = {turn.id for turn in self.chat.turns} - cut_off

    def _state(self) -> object:
        """What a change of the chat changes: of all turns, only the running reply does."""
        n_rounds = len(self.running.recording.rounds) if self.running else None
        return _columns(self.chat, self.running), [turn.id for turn in self.chat.turns], n_rounds

    # Who has it open

    def _claim(self) -> None:
        """Open the chat for this program alone, as the store has it now. Raises OSError."""
        with self._store.translated():
            db = self._connection()
            with transaction(db):
                row = self._row(db)
                if row is None or not self._is_free(row):
                    self._become_copy()
                    return
                owns = "UPDATE chat SET owner = ? WHERE name = ?"
                db.execute(owns, (self._held(), self.chat.name))
            if row["revision"] != self.chat.revision:
                # Another program has written since the chat was read.
                opened_at = self.chat.opened_at
                self.chat = self._store.read(self.chat.name)
                self.chat.opened_at = opened_at
                self._was_read()
            if row["owner"]:
                # It did not let go: it was killed, in the middle of a reply and before a purge.
                self._kept = None
                self.keep()
                self._store.purge(db, words=True)

    def _row(self, db: sqlite3.Connection) -> sqlite3.Row | None:
        query = "SELECT * FROM chat WHERE name = ?"
        found: sqlite3.Row | None = db.execute(query, (self.chat.name,)).fetchone()
        return found

    def _is_free(self, row: sqlite3.Row) -> bool:
        """Whether this program may write to the chat in the store."""
        is_ours = row["owner"] == self._owner
        return row["deleted"] is None and (is_ours or not self._store.is_held(row["owner"]))

    def _become_copy(self) -> None:
        self.chat.name = new_name()
        self.chat.revision, self.is_copy = 0, True

    def _held(self) -> str:
        """The name by which other programs know that this one has the chat open."""
        if self._lock is None:
            self._lock = self._store.lock(self._owner)
            with suppress(OSError, NotImplementedError):  # a file system without locks
                self._lock.acquire(timeout=0)
        return self._owner

    def _connection(self) -> sqlite3.Connection:
        if self._store.inode() != self._inode:
            # The file was deleted: what is written to an open one would be lost with it.
            self._close()
        if self._db is None:
            self._db = self._store.connect()
            self._inode = self._store.inode()
        return self._db

    def _close(self) -> None:
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    # Writing

    def write(self, db: sqlite3.Connection, owner: str) -> set[TurnId]:
        """Write what the store does not have, in a transaction; return the turns that are then
        whole there."""
        row, whole = self._row(db), self._whole
        if row is not None and not (row["revision"] == self.chat.revision and self._is_free(row)):
            self._become_copy()
            row = None
        if row is None:
            # It is new; or so is the file.
            self.chat.revision, whole = 0, set()
        else:
            # The list of chats may have changed them meanwhile.
            self.chat.title, self.chat.pinned = row["title"], bool(row["pinned"])
        columns = _columns(self.chat, self.running)
        if not _is_listed(columns):
            # No list would show it: a program that is killed now must not leave it behind.
            self._has_removed |= row is not None
            db.execute("DELETE FROM chat WHERE name = ?", (self.chat.name,))
            return set()
        columns |= {"name": self.chat.name, "used": self._store.clock(), "owner": owner}
        columns["revision"] = self.chat.revision + 1
        names, values = ", ".join(columns), ", ".join(f":{name}" for name in columns)
        changes = ", ".join(f"{name} = :{name}" for name in columns)
        db.execute(
            f"INSERT INTO chat ({names}) VALUES ({values}) "
            f"ON CONFLICT (name) DO UPDATE SET {changes}",
            columns,
        )
        (key,) = db.execute("SELECT key FROM chat WHERE name = ?", (self.chat.name,)).fetchone()
        ids = {turn.id for turn in self.chat.turns}
        others = "DELETE FROM turn WHERE chat = ? AND id NOT IN (SELECT value FROM json_each(?))"
        self._has_removed |= db.execute(others, (key, _json([*ids]))).rowcount > 0
        for turn in self.chat.turns:
            if turn.id not in whole:
                self._write_turn(db, key, turn)
        return ids - {self.running.id} if self.running else ids

    def _write_turn(self, db: sqlite3.Connection, chat: int, turn: Turn) -> None:
        reply = parts = None
        said, thought = turn.text, ""
        if isinstance(turn, Question):
            is_typed = [part.source for part in turn.parts] in ([], ["typed"])
            parts = None if is_typed else _json(turn.parts)
        else:
            reply = _json(msgspec.convert(turn.recording, ReplyRecord, from_attributes=True))
            # The words of a reply are indexed once, when it has ended.
            written = turn.recording.written if turn is not self.running else lambda _part: ""
            said, thought = written(Part.ANSWER), written(Part.REASONING)
        db.execute(
            "INSERT INTO turn (chat, id, parent, reply, parts, said, thought) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (chat, id) DO UPDATE "
            "SET reply = excluded.reply, said = excluded.said, thought = excluded.thought",
            (chat, turn.id, turn.parent, reply, parts, encodable(said), encodable(thought)),
        )
        if isinstance(turn, Reply):
            found = "SELECT key FROM turn WHERE chat = ? AND id = ?"
            (key,) = db.execute(found, (chat, turn.id)).fetchone()
            # Behind those that are kept, and those of the last piece again.
            rounds, size = turn.recording.rounds, _ROUNDS_OF_A_PIECE
            last = "SELECT ifnull(max(place), 0) FROM rounds WHERE turn = ?"
            kept = db.execute(last, (key,)).fetchone()[0]
            first = 0 if turn.recording.is_settled else kept
            starts = range(first * size, len(rounds), size)
            pieces = [(key, start // size, pack(rounds[start : start + size])) for start in starts]
            db.execute("DELETE FROM rounds WHERE turn = ? AND place >= ?", (key, first))
            db.executemany("INSERT INTO rounds VALUES (?, ?, ?)", pieces)


def _columns(chat: SavedChat, running: Reply | None) -> dict[str, Any]:
    is_unanswered = running is not None and not (
        running.recording.has_reasoning or running.recording.is_answering
    )
    return {
        "header": _json(chat.header),
        "title": encodable(chat.title),
        "begins": encodable(chat.begins),
        "messages": len(chat.turns.path) - 2 * is_unanswered,
        "pinned": chat.pinned,
        "role": encodable(chat.role),
        "unsent": _json(chat.unsent),
        "first_question": chat.first_question,
        "chosen": _json(chat.turns.chosen),
    }


def _is_listed(columns: dict[str, Any]) -> bool:
    return bool(columns["messages"] or columns["title"] or columns["begins"])


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return encodable(json.dumps(msgspec.to_builtins(value), ensure_ascii=False))

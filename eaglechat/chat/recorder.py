"""Writes an open chat to the store while it goes on.

Each call writes what the store does not have of the chat, in one transaction. What cannot be
written is written by a later call.
"""

from __future__ import annotations

import datetime
import json
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from eaglechat.chat.conversation.turns import Question, Reply, Turn, TurnId
from eaglechat.chat.packing import encodable, pack
from eaglechat.chat.saved_chat import ChatHeader, SavedChat, title_of
from eaglechat.chat.store import ChatStore, ReplyRecord, release, transaction
from eaglechat.chat.writing.question import QuestionParts, shown
from eaglechat.hub.local.pair import Pair
from eaglechat.wire.records import Part

if TYPE_CHECKING:
    from filelock import FileLock

NotSaved = Callable[[Path, OSError], None]
"""Called once when a chat cannot be written."""
_SHORT = 2000
"""Characters up to which the prompt is written each second while it is typed."""
_ROUNDS_OF_A_PIECE = 256
"""Rounds are packed by so many: while a reply is written, only the last piece is packed again."""


def begin(store: ChatStore, pair: Pair, not_saved: NotSaved) -> ChatRecorder:
    """The recorder of a new chat. The store gets it when there is something to keep."""
    now = datetime.datetime.now().astimezone()
    target, draft = pair.to_load
    header = ChatHeader(
        created=now.isoformat(timespec="seconds"),
        pair=pair.name,
        target=target,
        draft=draft,
        server=pair.server.url if pair.server else "",
    )
    return ChatRecorder(store, SavedChat(_name(now), header), not_saved)


def resume(store: ChatStore, chat: SavedChat, not_saved: NotSaved) -> ChatRecorder:
    """The recorder of a chat that was read; of a copy of it if another program has it open."""
    recorder = ChatRecorder(store, chat, not_saved)
    # An error is reported by the first call that writes.
    with suppress(OSError):
        recorder.claim()
    return recorder


class ChatRecorder:
    def __init__(self, store: ChatStore, chat: SavedChat, not_saved: NotSaved) -> None:
        """`chat` is what is open; its turns may change meanwhile."""
        self._store, self._not_saved = store, not_saved
        self._db: sqlite3.Connection | None = None
        self._owner = uuid.uuid4().hex
        self._lock: FileLock | None = None
        self._running: TurnId | None = None
        self._has_removed = False
        self.is_copy = False
        """Another program has the chat open: this is a new one, with the same beginning."""
        self.is_behind = False
        """Some of the chat could not be written: leaving it now loses that."""
        self._take(chat)

    def _take(self, chat: SavedChat) -> None:
        self.chat, self._typed = chat, chat.unsent
        self._kept = chat.kept
        """Turns that the store has."""
        self.role = chat.role
        """Role of the next question; written with it, or when the chat is left."""
        # What a killed program was writing has no text yet.
        replies = (turn for turn in chat.turns if isinstance(turn, Reply))
        self._changed = {turn.id: 0 for turn in replies if turn.recording.end is None}
        """Replies of which the store lacks something, and how many of their rounds it has."""

    @property
    def name(self) -> str:
        """The chat's name in the store, which may not have it yet."""
        return self.chat.name

    def reader(self) -> Callable[[], SavedChat]:
        """A function that reads the chat, in any thread. It raises OSError."""
        return (lambda: self.chat) if self.is_behind else partial(self._store.read, self.name)

    # What happens in the chat

    def asked(self) -> None:
        """A question was asked; `began` writes it."""
        self.chat.role, self.chat.unsent = self.role, ()

    def began(self, reply: Reply) -> None:
        """A reply begins, or goes on after it had been stopped."""
        self._running, self._changed[reply.id] = reply.id, len(reply.recording.rounds)
        self.keep()

    def writing(self, reply: Reply) -> None:
        """Write the rounds since the last call."""
        if len(reply.recording.rounds) > self._changed.get(reply.id, 0):
            self.keep()

    def settled(self, reply: Reply) -> None:
        """The rounds were replaced by final ones; `ended` writes them."""
        self._changed[reply.id] = 0

    def ended(self) -> None:
        """The reply ended, or was cut off."""
        self._running = None
        self.keep()

    def window(self, first_question: TurnId | None) -> None:
        """The context begins with this question; None: with the first one."""
        if first_question != self.chat.first_question:
            self.chat.first_question = first_question
            self.keep()

    def rename(self, title: str) -> None:
        """Give the chat a title; an empty one stands for its first question."""
        self.chat.title = title_of(title)
        self.keep()

    def pin(self, pinned: bool) -> None:
        """Put the chat at the top of the list, or back among the others."""
        self.chat.pinned = pinned
        self.keep()

    def typed(self, parts: QuestionParts) -> None:
        """This is in the prompt; to be called about once a second. A long text is written once it
        has not changed since the last call."""
        if sum(len(part.text) for part in parts) <= _SHORT or parts == self._typed:
            self.keep_unsent(parts)
        self._typed = parts
        if self.is_behind:
            self.keep()

    def keep_unsent(self, unsent: QuestionParts) -> None:
        """This is in the prompt, or was given back to it."""
        if unsent != self.chat.unsent:
            self.chat.unsent = unsent
            self.keep()

    def left(self, unsent: QuestionParts) -> None:
        """The chat was left with this in the prompt."""
        if self.chat.turns and self.role != self.chat.role:
            self.chat.role = self.role
            self.keep()
        self.keep_unsent(unsent)
        if self.is_behind:
            self.keep()
        with suppress(OSError), self._store.translated():
            self._let_go()
        self._close()
        if self._lock is not None:
            release(self._lock)

    def _let_go(self) -> None:
        """Give the chat up, and purge what is gone from it."""
        if self._db is None or not self.chat.revision:
            return
        with transaction(self._db):
            frees = "UPDATE chat SET owner = '' WHERE name = ? AND owner = ?"
            self._db.execute(frees, (self.name, self._owner))
        self._store.purge(self._db, words=self._has_removed)

    # Writing

    def claim(self) -> None:
        """Open the chat for this program alone, as the store has it now. Raises OSError."""
        with self._store.translated():
            db = self._connection()
            with transaction(db):
                row = self._row(db)
                if row is None or not self._is_free(row):
                    self._become_copy()
                    return
                owns = "UPDATE chat SET owner = ? WHERE name = ?"
                db.execute(owns, (self._held(), self.name))
            if row["revision"] != self.chat.revision:
                # Another program has written since the chat was read.
                opened_at = self.chat.opened_at
                self._take(self._store.read(self.name))
                self.chat.opened_at = opened_at
            if row["owner"]:
                # It did not let go: it was killed, in the middle of a reply and before a purge.
                self.keep()
                self._store.purge(db, words=True)

    def keep(self) -> None:
        """Write what the store does not have."""
        try:
            with self._store.translated():
                db = self._connection()
                with transaction(db):
                    self._write(db)
        except OSError as error:
            if not self.is_behind:
                self._not_saved(self._store.file, error)
            self.is_behind = True
            # The next call opens the file anew: it may be another one by then.
            self._close()
            return
        self.is_behind = False
        self.chat.revision += 1
        turns = self.chat.turns
        self._has_removed |= any(id not in turns for id in self._kept)
        self._kept = frozenset(turn.id for turn in turns)
        self._changed = {
            turn.id: len(turn.recording.rounds)
            for turn in turns.path[-1:]
            if isinstance(turn, Reply) and turn.id == self._running
        }

    def _row(self, db: sqlite3.Connection) -> sqlite3.Row | None:
        query = "SELECT owner, revision, deleted FROM chat WHERE name = ?"
        found: sqlite3.Row | None = db.execute(query, (self.name,)).fetchone()
        return found

    def _is_free(self, row: sqlite3.Row) -> bool:
        """Whether this program may write to the chat in the store."""
        is_ours = row["owner"] == self._owner
        return row["deleted"] is None and (is_ours or not self._store.is_held(row["owner"]))

    def _become_copy(self) -> None:
        self.chat.name = _name(datetime.datetime.now())
        self.chat.revision, self._kept, self.is_copy = 0, frozenset(), True

    def _held(self) -> str:
        """The name by which other programs know that this one has the chat open."""
        if self._lock is None:
            self._lock = self._store.hold(self._owner)
        return self._owner

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = self._store.connect()
        return self._db

    def _close(self) -> None:
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    def _write(self, db: sqlite3.Connection) -> None:
        row = self._row(db)
        if row is None:
            # It is new; or so is the file.
            self.chat.revision, self._kept = 0, frozenset()
        elif row["revision"] != self.chat.revision or not self._is_free(row):
            self._become_copy()
        columns = self._columns()
        if not (self.chat.turns or columns["title"] or columns["begins"]):
            # No list would show it: a program that is killed now must not leave it behind.
            db.execute("DELETE FROM chat WHERE name = ?", (self.name,))
            return
        if self.chat.revision:
            values = ", ".join(f"{column} = :{column}" for column in columns)
            db.execute(f"UPDATE chat SET {values} WHERE name = :name", columns)
        else:
            values = ", ".join(f":{column}" for column in columns)
            db.execute(f"INSERT INTO chat ({', '.join(columns)}) VALUES ({values})", columns)
        (key,) = db.execute("SELECT key FROM chat WHERE name = ?", (self.name,)).fetchone()
        for id in self._kept - {turn.id for turn in self.chat.turns}:
            db.execute("DELETE FROM turn WHERE chat = ? AND id = ?", (key, id))
        for turn in self.chat.turns:
            if turn.id not in self._kept:
                self._add(db, key, turn)
            elif turn.id in self._changed and isinstance(turn, Reply):
                self._update(db, key, turn)

    def _columns(self) -> dict[str, Any]:
        chat, path = self.chat, self.chat.turns.path
        first = path[0].parts if path else chat.unsent
        reply = path[-1] if path else None
        is_unanswered = (
            isinstance(reply, Reply)
            and reply.id == self._running
            and not (reply.recording.has_reasoning or reply.recording.is_answering)
        )
        return {
            "name": chat.name,
            "header": _json(chat.header),
            "used": self._store.clock(),
            "title": encodable(chat.title),
            "begins": encodable(title_of(shown(first))),
            "messages": len(path) - 2 * is_unanswered,
            "pinned": chat.pinned,
            "role": encodable(chat.role),
            "unsent": _json(chat.unsent),
            "first_question": chat.first_question,
            "chosen": _json(chat.turns.chosen_siblings),
            "owner": self._held(),
            "revision": chat.revision + 1,
        }

    def _add(self, db: sqlite3.Connection, key: int, turn: Turn) -> None:
        row: tuple[object, ...]
        if isinstance(turn, Question):
            is_typed = [part.source for part in turn.parts] in ([], ["typed"])
            row = (None, None if is_typed else _json(turn.parts), encodable(turn.text), "")
        else:
            row = (_json(_record(turn)), None, *self._texts(turn))
        new = db.execute(
            "INSERT INTO turn (chat, id, parent, reply, parts, said, thought) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (key, turn.id, turn.parent, *row),
        ).lastrowid
        if isinstance(turn, Reply):
            _write_rounds(db, new, turn, 0)

    def _update(self, db: sqlite3.Connection, chat: int, reply: Reply) -> None:
        found = "SELECT key FROM turn WHERE chat = ? AND id = ?"
        (key,) = db.execute(found, (chat, reply.id)).fetchone()
        db.execute(
            "UPDATE turn SET reply = ?, said = ?, thought = ? WHERE key = ?",
            (_json(_record(reply)), *self._texts(reply), key),
        )
        _write_rounds(db, key, reply, self._changed[reply.id])

    def _texts(self, reply: Reply) -> tuple[str, str]:
        """Answer and reasoning. The words of a reply are indexed once, when it has ended."""
        if reply.id == self._running:
            return "", ""
        written = reply.recording.written
        return encodable(written(Part.ANSWER)), encodable(written(Part.REASONING))


def _record(reply: Reply) -> ReplyRecord:
    recording = reply.recording
    return ReplyRecord(
        terms=recording.terms,
        n_past=recording.n_past,
        end=recording.end,
        stats=recording.stats if recording.end else None,
        changed=tuple(sorted(recording.changed)),
        speculation_stopped=recording.speculation_stopped,
    )


def _write_rounds(db: sqlite3.Connection, key: int | None, reply: Reply, n_kept: int) -> None:
    """Write the rounds of a reply behind the first `n_kept`, and those of the last piece again."""
    recording = reply.recording
    if recording.packed is not None:
        first, pieces = 0, [*enumerate(recording.packed.pieces)]
    else:
        rounds, size = recording.rounds, _ROUNDS_OF_A_PIECE
        first = n_kept // size
        starts = range(first * size, len(rounds), size)
        pieces = [(start // size, pack(rounds[start : start + size])) for start in starts]
    db.execute("DELETE FROM rounds WHERE turn = ? AND place >= ?", (key, first))
    rows = [(key, place, packed) for place, packed in pieces]
    db.executemany("INSERT INTO rounds VALUES (?, ?, ?)", rows)


def _name(now: datetime.datetime) -> str:
    return f"{now:%Y-%m-%d_%H%M%S.%f}"


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return encodable(json.dumps(msgspec.to_builtins(value), ensure_ascii=False))

"""All chats in one SQLite file: read, listed, searched, renamed, pinned, deleted.

Several programs may use the file at once. An open chat belongs to one of them, which holds a lock
file for as long as it lives. What is deleted is overwritten in the file, and is out of its log and
out of the index of words with the next `purge`.
"""

from __future__ import annotations

import datetime
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from eaglechat.chat.packing import encodable, unpack
from eaglechat.chat.recording import Recording, Terms, TurnPart, text_alone
from eaglechat.chat.saved_chat import ChatHeader, SavedChat, title_of
from eaglechat.chat.search import excerpt, parse, plain_words
from eaglechat.chat.turns import Question, Reply, TurnError, TurnId
from eaglechat.chat.writing.question import typed
from eaglechat.wire.records import ReplyEnd, Round
from eaglechat.wire.stats import SpeculationStats

if TYPE_CHECKING:
    from filelock import FileLock

KEPT_DAYS = 30
"""How long a deleted chat can be restored."""
MOST_FOUND, MOST_OF_A_CHAT = 60, 3
"""Hits that are shown, in all and of one chat."""
_VERSION = 1
_PATIENCE_S = 1.0
"""How long to wait for another program that is writing."""
_PRAGMAS = (
    "journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON", "foreign_keys = ON",
    "temp_store = MEMORY", "trusted_schema = ON",
)  # fmt: skip
_SCHEMA = f"""
-- Another program may make the same tables at the same time.
CREATE TABLE IF NOT EXISTS chat (
    key INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    header TEXT NOT NULL,           -- ChatHeader
    used REAL NOT NULL,             -- in seconds since 1970
    title TEXT NOT NULL,            -- the user's
    begins TEXT NOT NULL,           -- the title if the user gave none
    messages INTEGER NOT NULL,
    pinned INTEGER NOT NULL,
    role TEXT NOT NULL,
    unsent TEXT NOT NULL,           -- list of TurnPart
    first_question INTEGER,         -- in the context, if turns have left it
    chosen TEXT NOT NULL,           -- list of the chosen turns among siblings
    deleted REAL,                   -- in seconds since 1970
    owner TEXT NOT NULL,            -- whose lock file says whether the chat is open
    revision INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS turn (
    key INTEGER PRIMARY KEY,
    chat INTEGER NOT NULL REFERENCES chat ON DELETE CASCADE,
    id INTEGER NOT NULL,
    parent INTEGER,
    reply TEXT,                     -- ReplyRecord; of a question NULL
    parts TEXT,                     -- list of TurnPart, of a question that is not just typed text
    said TEXT NOT NULL,             -- of a reply, once it ended
    thought TEXT NOT NULL,
    UNIQUE (chat, id)
);
CREATE TABLE IF NOT EXISTS rounds (
    turn INTEGER NOT NULL REFERENCES turn ON DELETE CASCADE,
    place INTEGER NOT NULL,          -- of a piece among those of a reply
    packed BLOB NOT NULL,
    PRIMARY KEY (turn, place)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS taken_over (file TEXT PRIMARY KEY);
CREATE VIRTUAL TABLE IF NOT EXISTS words
USING fts5(said, thought, content='', tokenize="unicode61");
CREATE TRIGGER IF NOT EXISTS turn_added AFTER INSERT ON turn BEGIN
    INSERT INTO words(rowid, said, thought)
    VALUES (new.key, words_of(new.said), words_of(new.thought));
END;
CREATE TRIGGER IF NOT EXISTS turn_removed AFTER DELETE ON turn BEGIN
    INSERT INTO words(words, rowid, said, thought)
    VALUES ('delete', old.key, words_of(old.said), words_of(old.thought));
END;
CREATE TRIGGER IF NOT EXISTS turn_changed AFTER UPDATE OF said, thought ON turn BEGIN
    INSERT INTO words(words, rowid, said, thought)
    VALUES ('delete', old.key, words_of(old.said), words_of(old.thought));
    INSERT INTO words(rowid, said, thought)
    VALUES (new.key, words_of(new.said), words_of(new.thought));
END;
PRAGMA user_version = {_VERSION};
"""
_SUMMARY = "chat.name, chat.header, chat.title, chat.begins, chat.messages, chat.pinned, chat.used"
_FOUND = f"""
WITH hit AS (
    SELECT turn.key, row_number() OVER (PARTITION BY turn.chat ORDER BY turn.id DESC) AS place
    FROM words JOIN turn ON turn.key = words.rowid JOIN chat ON chat.key = turn.chat
    WHERE words MATCH ? AND chat.deleted IS NULL
)
SELECT {_SUMMARY}, turn.id, turn.said, turn.thought
FROM hit JOIN turn ON turn.key = hit.key JOIN chat ON chat.key = turn.chat
WHERE hit.place <= {MOST_OF_A_CHAT} ORDER BY chat.used DESC, chat.key, hit.place LIMIT {MOST_FOUND}
"""


class ReplyRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a reply beside its text and its rounds."""

    terms: Terms
    end: ReplyEnd | None = None
    """None if it was cut off."""
    stats: SpeculationStats | None = None
    speculation_stopped: str | None = None


@dataclass(frozen=True)
class ChatSummary:
    """A row of the list."""

    name: str
    header: ChatHeader
    title: str
    messages: int
    pinned: bool
    used: float
    """Time of the last change, in seconds since 1970."""


@dataclass(frozen=True)
class Hit:
    """A turn in which all terms of a query were found."""

    chat: ChatSummary
    turn: TurnId
    is_thought: bool
    """The excerpt is from the reasoning."""
    text: str
    """The words around the first hit."""
    marks: list[tuple[int, int]]
    """Start and end of each hit in them."""


class ChatStore:
    """Any thread may call its methods. They raise OSError, unless they say otherwise, with a
    sentence's end for a text: SQLite's own, or the operating system's."""

    def __init__(self, file: Path, say: Callable[[str], None] = lambda _sentence: None) -> None:
        """`say` hears, in any thread, that a file was moved aside, why no chats are listed, or why
        the open one is not saved."""
        self.file, self.say, self.clock = file, say, time.time

    # The list, and what is found. They say why there is none.

    def listed(self) -> list[ChatSummary]:
        """Every chat in which something was said or typed: pinned ones first, then those used
        last."""
        return self._summaries("ORDER BY pinned DESC, used DESC")

    def latest(self, count: int) -> list[ChatSummary]:
        return self._summaries(f"ORDER BY used DESC LIMIT {count}")

    def _summaries(self, order: str) -> list[ChatSummary]:
        query = f"SELECT {_SUMMARY} FROM chat WHERE deleted IS NULL {order}"
        return [_summary(row) for row in self._rows(query)]

    def find(self, typed: str) -> list[Hit]:
        """The turns in which the query is found, those of the chats used last first."""
        query = parse(typed)
        hits = []
        for row in self._rows(_FOUND, query.match) if query.match else ():
            *about, turn, said, thought = row
            is_thought = not query.is_in(said)
            text = excerpt(thought if is_thought else said, query)
            hits.append(Hit(_summary(about), turn, is_thought, text, query.marks(text)))
        return hits

    def count_with(self, is_wanted: Callable[[str], bool]) -> int:
        """How many chats began with a target or a draft whose path is wanted."""
        headers = [chat.header for chat in self._summaries("")]
        return sum(
            any(is_wanted(file) for file in (header.target, header.draft) if file)
            for header in headers
            if not header.server
        )

    def _rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        if not self.file.exists():
            return []
        try:
            with self.opened(to_read=True) as db:
                return db.execute(query, values).fetchall()
        except OSError as error:
            self.say(f"The chats in {self.file} cannot be read: {error}.")
            return []

    # One chat

    def read(self, name: str) -> SavedChat:
        with self.opened(to_read=True) as db, transaction(db, "DEFERRED"):
            try:
                return _chat(db, _row(db, name))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise OSError(f"what it holds is no chat: {error}") from error

    def saved(self) -> Iterator[SavedChat]:
        """Every chat that can be read, the one begun last first."""
        for (name,) in self._rows("SELECT name FROM chat WHERE deleted IS NULL ORDER BY name DESC"):
            with suppress(OSError):
                yield self.read(name)

    def rename(self, name: str, title: str) -> None:
        """Give a chat a title; an empty one stands for its first question. The time at which it
        was used last stays."""
        self._change(name, "title", encodable(title_of(title)))

    def pin(self, name: str, pinned: bool) -> None:
        self._change(name, "pinned", pinned)

    def delete(self, name: str) -> None:
        """Delete a chat. For `KEPT_DAYS` it can be restored. Not one that is open in a
        program."""
        self._change(name, "deleted", self.clock())

    def _change(self, name: str, column: str, value: object) -> None:
        with self.opened() as db:
            with transaction(db):
                owner = _row(db, name)["owner"]
                if column == "deleted" and self.is_held(owner):
                    raise OSError("it is open in another eaglechat; delete it there")
                db.execute(f"UPDATE chat SET {column} = ? WHERE name = ?", (value, name))
                # No list would show it.
                nothing = "title = '' AND begins = '' AND messages = 0"
                db.execute(f"DELETE FROM chat WHERE name = ? AND {nothing}", (name,))
            self.purge(db, words=False)

    def restore(self) -> str | None:
        """Restore the chat that was deleted last; its name, or None if there is none."""
        with self.opened() as db, transaction(db):
            row = db.execute(
                "SELECT name FROM chat WHERE deleted IS NOT NULL ORDER BY deleted DESC LIMIT 1"
            ).fetchone()
            if row is None:
                return None
            db.execute("UPDATE chat SET deleted = NULL WHERE name = ?", row)
            return str(row[0])

    def empty_trash(self) -> None:
        """Delete for good what was deleted more than `KEPT_DAYS` ago."""
        if not self.file.exists():
            return
        with self.opened() as db:
            oldest = self.clock() - KEPT_DAYS * 86400
            if db.execute("DELETE FROM chat WHERE deleted < ?", (oldest,)).rowcount:
                self.purge(db, words=True)

    def purge(self, db: sqlite3.Connection, *, words: bool) -> None:
        """Empty the log of the file, which still has what was overwritten; with `words`, write the
        index of words anew without those of deleted turns."""
        if words:
            db.execute("INSERT INTO words(words) VALUES ('optimize')")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # Who has a chat open

    def is_held(self, owner: str) -> bool:
        """Whether the program lives that has a chat open under this name."""
        lock = self.lock(owner)
        if not owner or not Path(lock.lock_file).exists():
            return False
        try:
            lock.acquire(timeout=0)
        except TimeoutError:
            return True
        except (OSError, NotImplementedError):
            return False
        release(lock)
        return False

    def lock(self, name: str) -> FileLock:
        # The menu is shown before this is read.
        from filelock import FileLock  # noqa: PLC0415

        return FileLock(self.file.with_name(f"{self.file.name}.{name}.lock"), thread_local=False)

    # The file

    @contextmanager
    def opened(self, *, to_read: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection for as long as the block runs. SQLite's errors become OSErrors. `to_read`:
        also where nothing can be written."""
        with self.translated():
            try:
                db = self.connect()
            except (sqlite3.OperationalError, OSError) as error:
                if not to_read or "locked" in str(error):
                    raise
                # SQLite needs to write beside a file that others may use.
                db = sqlite3.connect(f"{self.file.absolute().as_uri()}?immutable=1", uri=True)
                db.row_factory = sqlite3.Row
            with closing(db):
                yield db

    @contextmanager
    def translated(self) -> Iterator[None]:
        """SQLite's errors as OSErrors; what can be done against damage is done first."""
        try:
            yield
        except sqlite3.Error as error:
            if _is_damage(error):
                self._mend(error)
            raise OSError(str(error)) from error

    def connect(self) -> sqlite3.Connection:
        """A new connection, for any one thread at a time. The file is created if there is none; if
        it cannot be used, it is moved aside first. Raises sqlite3.Error and OSError."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._connected()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._mend(error)
        return self._connected()

    def inode(self) -> int | None:
        """Which file it is; None if there is none."""
        with suppress(FileNotFoundError):
            return self.file.stat().st_ino
        return None

    def _connected(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.file, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False
        )
        try:
            db.row_factory = sqlite3.Row
            db.create_function("words_of", 1, plain_words, deterministic=True)
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > _VERSION:
                advice = "open it with the eaglechat that wrote it"
                raise sqlite3.DatabaseError(f"its format is version {version}: {advice}")
            if not version and db.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
                raise sqlite3.DatabaseError("it is another program's")
            for pragma in _PRAGMAS:
                db.execute(f"PRAGMA {pragma}").fetchall()
            if version < _VERSION:
                db.executescript(f"BEGIN EXCLUSIVE; {_SCHEMA} COMMIT;")
        except BaseException:
            db.close()
            raise
        return db

    def _mend(self, why: Exception) -> None:
        """Move the file aside, unless only its index of words is damaged, or another program has
        moved it meanwhile: then make the index anew."""
        lock = self.lock("moving")
        with ExitStack() as stack:
            stack.callback(release, lock)
            with suppress(NotImplementedError):  # a file system without locks
                lock.acquire()
            try:
                with closing(self._connected()) as db:
                    if db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok":
                        with transaction(db):
                            db.execute("INSERT INTO words(words) VALUES ('delete-all')")
                            db.execute(
                                "INSERT INTO words(rowid, said, thought) "
                                "SELECT key, words_of(said), words_of(thought) FROM turn"
                            )
                        return
            except sqlite3.OperationalError:
                return
            except sqlite3.DatabaseError:
                pass
            now = datetime.datetime.now()
            aside = self.file.with_name(f"{self.file.stem}.aside-{now:%Y%m%d-%H%M%S-%f}.sqlite3")
            for suffix in ("-wal", "-shm", ""):
                with suppress(FileNotFoundError):
                    Path(f"{self.file}{suffix}").replace(f"{aside}{suffix}")
            self.say(
                f"The chats in {self.file} cannot be used ({why}). The file is now {aside.name} in "
                "the same folder, and chats begin in a new one."
            )


def _is_damage(error: Exception) -> bool:
    # SQLite's codes for a damaged file and for no database have no class of their own. It stands
    # also for a sound file that this version cannot use.
    return type(error) is sqlite3.DatabaseError


@contextmanager
def transaction(db: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """All of what the block does, or nothing."""
    db.execute(f"BEGIN {kind}")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk ended the transaction already
            db.execute("ROLLBACK")
        raise


def release(lock: FileLock) -> None:
    """Give up a lock; its file goes."""
    with suppress(OSError):
        Path(lock.lock_file).unlink(missing_ok=True)
    lock.release(force=True)
    with suppress(OSError):  # where a file that is open cannot be deleted
        Path(lock.lock_file).unlink(missing_ok=True)


# From rows


def _summary(row: Iterable[Any]) -> ChatSummary:
    name, header, title, begins, messages, pinned, used = row
    decoded = msgspec.json.decode(header, type=ChatHeader)
    return ChatSummary(name, decoded, title or begins, messages, bool(pinned), used)


def _row(db: sqlite3.Connection, name: str) -> sqlite3.Row:
    query = "SELECT * FROM chat WHERE name = ? AND deleted IS NULL"
    row: sqlite3.Row | None = db.execute(query, (name,)).fetchone()
    if row is None:
        raise FileNotFoundError(f"there is no chat {name}")
    return row


def _chat(db: sqlite3.Connection, row: sqlite3.Row) -> SavedChat:
    rows = db.execute("SELECT * FROM turn WHERE chat = ? ORDER BY id", (row["key"],)).fetchall()
    chat = SavedChat(
        name=row["name"],
        header=msgspec.json.decode(row["header"], type=ChatHeader),
        unsent=msgspec.json.decode(row["unsent"], type=tuple[TurnPart, ...]),
        first_question=row["first_question"],
        role=row["role"],
        title=row["title"],
        pinned=bool(row["pinned"]),
        revision=row["revision"],
    )
    for turn in rows:
        # One that does not fit the tree is left out: the file was changed by something else.
        with suppress(TurnError):
            if turn["reply"] is not None:
                recording = _recording(db, turn)
                chat.turns.add(Reply(turn["id"], turn["parent"], recording))
                continue
            parts = typed(turn["said"])
            if turn["parts"] is not None:
                parts = msgspec.json.decode(turn["parts"], type=tuple[TurnPart, ...])
            chat.turns.add(Question(turn["id"], turn["parent"], parts))
    chat.turns.prefer(msgspec.json.decode(row["chosen"], type=list[int]))
    chat.give_back_unanswered()
    return chat


def _recording(db: sqlite3.Connection, turn: sqlite3.Row) -> Recording:
    record = msgspec.json.decode(turn["reply"], type=ReplyRecord)
    query = "SELECT packed FROM rounds WHERE turn = ? ORDER BY place"
    pieces = db.execute(query, (turn["key"],)).fetchall()
    recording, texts = Recording(record.terms), (turn["said"], turn["thought"])

    def read() -> list[Round]:
        try:
            return [round_ for (packed,) in pieces for round_ in unpack(packed)]
        except ValueError:
            return [text_alone(*texts)]

    if any(texts):
        recording.hold(*texts, read)
    else:
        # Of what a killed program was writing, only the rounds are known.
        for round_ in read():
            recording.add(round_)
    recording.speculation_stopped = record.speculation_stopped
    if record.end is not None:
        recording.finish(record.end, record.stats)
    return recording

"""The index of all chats: what the list shows of each, and their words. A cache: it may be deleted
at any time, and never holds what the chats' files do not say.

The words are kept without the texts (FTS5, contentless): a turn that is gone stays in them under a
number that nothing has any more, until there are too many of those.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from eaglechat.chat.conversation.turns import TurnId
from eaglechat.chat.history import lines
from eaglechat.chat.history.listing import ChatSummary
from eaglechat.chat.search.passages import Span
from eaglechat.chat.search.query import Query, prepared

_VERSION = 100 + lines.VERSION
"""Of the tables in hundreds, and of the chats: what could not be read before is looked at again."""
_BUSY_S = 10.0
_GONE_AT_MOST = 20_000
"""Turns that are gone, beside as many as are there, from which the index is made anew."""
_SCHEMA = """
CREATE TABLE chats (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, size INTEGER, written INTEGER,
    header BLOB, title TEXT, messages INTEGER, pinned INTEGER, problem TEXT,
    read_size INTEGER, read_written INTEGER
);
CREATE TABLE turns (
    id INTEGER PRIMARY KEY AUTOINCREMENT, chat INTEGER NOT NULL, turn INTEGER NOT NULL,
    digest INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL
);
CREATE INDEX turns_of_a_chat ON turns (chat);
CREATE VIRTUAL TABLE words USING fts5 (
    said, thought, content = '', columnsize = 0, prefix = '3 4',
    tokenize = 'unicode61 remove_diacritics 2'
);
INSERT INTO words (words, rank) VALUES ('hashsize', 16000000);
"""
_VOCABULARY = "CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab (main, words, instance)"
_SUMMARY = "name, size, written, header, title, messages, pinned, problem"
_KEEP = f"""
INSERT INTO chats ({_SUMMARY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET size = excluded.size, written = excluded.written,
    header = excluded.header, title = excluded.title, messages = excluded.messages,
    pinned = excluded.pinned, problem = excluded.problem
"""
# The order of joining is given: the newest words first, and no further than they are wanted.
_SEARCH = """
SELECT chat, turn, start, stop FROM words CROSS JOIN turns ON turns.id = words.rowid
WHERE words MATCH ? ORDER BY words.rowid DESC LIMIT ?
"""
_COMPLETED = 100
"""The most words that take the place of their beginning."""
_FIRST, _LAST = "\1", "\U0010ffff"
"""What comes before and after every letter."""
_LOOKED_AT = 20_000
"""Hits that are looked at for those of different chats."""


class NoIndexError(Exception):
    """There is no index now; the text is the reason."""


@dataclass(frozen=True)
class IndexedTurn:
    """A turn on its way into the index. The digest tells whether its texts changed."""

    id: TurnId
    said: str
    thought: str
    digest: int
    span: Span


@dataclass(frozen=True)
class Hit:
    """A turn in which everything was found."""

    chat: ChatSummary
    turn: TurnId
    span: Span


class Index:
    """The index of one folder of chats, for one thread at a time."""

    def __init__(self, file: Path, directory: Path) -> None:
        """Raises NoIndexError. What cannot be read as an index is made anew."""
        self._file, self._directory = file, directory
        try:
            try:
                self._open()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                self.delete()
                self._open()
        except (sqlite3.Error, OSError) as error:
            raise NoIndexError(_reason(error, file)) from error

    def _open(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        # Another thread closes or interrupts it.
        self._base = sqlite3.connect(self._file, timeout=_BUSY_S, check_same_thread=False)
        try:
            with suppress(sqlite3.OperationalError):  # refused at once while another sets it
                self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = NORMAL")
            if self._one("PRAGMA user_version") != _VERSION:
                self._make()
            self._base.execute(_VOCABULARY)
        except sqlite3.Error:
            self._base.close()
            raise

    def _make(self) -> None:
        """Make the tables, in the place of those of another version."""
        with self._base:
            self._base.execute("BEGIN IMMEDIATE")
            if self._one("PRAGMA user_version") != _VERSION:
                for table in ("chats", "turns", "words"):
                    self._base.execute(f"DROP TABLE IF EXISTS {table}")
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    self._base.execute(statement)
                self._base.execute(f"PRAGMA user_version = {_VERSION}")

    def close(self) -> None:
        self._base.close()

    def interrupt(self) -> None:
        """From another thread: end what is being searched."""
        with suppress(sqlite3.ProgrammingError):  # closed meanwhile
            self._base.interrupt()

    def delete(self) -> None:
        """Delete the files of the index; it must be closed. Raises OSError."""
        for suffix in ("", "-wal", "-shm"):
            self._file.with_name(self._file.name + suffix).unlink(missing_ok=True)

    # What the list shows

    def known(self) -> dict[str, ChatSummary]:
        """Every chat in the index, by the name of its file."""
        rows = self._base.execute(f"SELECT {_SUMMARY} FROM chats")
        return {row[0]: self._summary(row) for row in rows}

    def keep(self, summaries: Iterable[ChatSummary]) -> None:
        """Keep what the list shows of chats."""
        with self._base:
            self._base.executemany(_KEEP, map(_row, summaries))

    def _summary(self, row: tuple[object, ...]) -> ChatSummary:
        name, size, written, header, title, messages, pinned, problem = row
        line = lines.decode(header) if isinstance(header, bytes) else None
        return ChatSummary(
            file=self._directory / str(name),
            stamp=(_int(size), _int(written)),
            header=line if isinstance(line, lines.ChatHeader) else None,
            title=str(title),
            messages=_int(messages),
            pinned=bool(pinned),
            problem=None if problem is None else str(problem),
        )

    # Words

    def read(self) -> dict[str, tuple[int, int]]:
        """The stamps with which the texts of chats were read, by the name of the file."""
        rows = self._base.execute("SELECT name, read_size, read_written FROM chats")
        return {name: (size, written) for name, size, written in rows if size is not None}

    def forget(self, names: Iterable[str]) -> None:
        """Drop chats that are gone."""
        with self._base:
            for name in names:
                self._base.execute(
                    "DELETE FROM turns WHERE chat = (SELECT id FROM chats WHERE name = ?)", (name,)
                )
                self._base.execute("DELETE FROM chats WHERE name = ?", (name,))

    def take(self, chats: Iterable[tuple[ChatSummary, Iterable[IndexedTurn]]]) -> None:
        """Take in the texts of chats, together or not at all."""
        with self._base:
            for summary, turns in chats:
                self._base.execute(_KEEP, _row(summary))
                chat = self._one("SELECT id FROM chats WHERE name = ?", summary.file.name)
                self._take_turns(chat, turns)
                self._base.execute(
                    "UPDATE chats SET read_size = ?, read_written = ? WHERE id = ?",
                    (*summary.stamp, chat),
                )

    def _take_turns(self, chat: int, turns: Iterable[IndexedTurn]) -> None:
        rows = self._base.execute("SELECT turn, digest, id FROM turns WHERE chat = ?", (chat,))
        before = {(turn, digest): id for turn, digest, id in rows}
        for turn in turns:
            if before.pop((turn.id, turn.digest), None) is not None:
                continue
            added = self._base.execute(
                "INSERT INTO turns (chat, turn, digest, start, stop) VALUES (?, ?, ?, ?, ?)",
                (chat, turn.id, turn.digest, *turn.span),
            )
            self._base.execute(
                "INSERT INTO words (rowid, said, thought) VALUES (?, ?, ?)",
                (added.lastrowid, prepared(turn.said), prepared(turn.thought)),
            )
        self._base.executemany("DELETE FROM turns WHERE id = ?", ((id,) for id in before.values()))

    def forget_all(self) -> None:
        """Drop everything."""
        with self._base:
            self._base.execute("INSERT INTO words (words) VALUES ('delete-all')")
            for table in ("chats", "turns", "sqlite_sequence"):
                self._base.execute(f"DELETE FROM {table}")

    def is_worn(self) -> bool:
        """Whether so much of it is gone that it should be made anew."""
        ever = self._one("SELECT max(id) FROM turns") or 0
        now = self._one("SELECT count(*) FROM turns")
        return ever > 2 * now + _GONE_AT_MOST

    def search(self, query: Query, most_of_a_chat: int, *, with_thoughts: bool) -> Iterator[Hit]:
        """The turns in which all of it is found, what was written last first."""
        match = query.match(None if with_thoughts else "said", self._completed)
        seen: Counter[int] = Counter()
        for chat, turn, start, stop in self._base.execute(_SEARCH, (match, _LOOKED_AT)):
            seen[chat] += 1
            if seen[chat] <= most_of_a_chat:
                row = self._base.execute(f"SELECT {_SUMMARY} FROM chats WHERE id = ?", (chat,))
                yield Hit(self._summary(row.fetchone()), turn, (start, stop))

    def _completed(self, beginning: str) -> list[str] | None:
        """The words that begin so, where there are not too many.

        FTS5 itself would put all places of all of them in order before it gives the first one.
        """
        # Not “> after”: that would step through every place of the word itself.
        question = "SELECT term FROM vocabulary WHERE term >= ? AND term < ? LIMIT 1"
        words, after = list[str](), beginning
        while row := self._base.execute(question, (after + _FIRST, beginning + _LAST)).fetchone():
            after = row[0]
            words.append(after)
            if len(words) > _COMPLETED:
                return None
        return words

    def _one(self, question: str, *values: object) -> int:
        row = self._base.execute(question, values).fetchone()
        return row[0] if row else 0


@contextmanager
def opened(file: Path, directory: Path) -> Iterator[Index]:
    """The index of a folder of chats, for a while. Raises NoIndexError, at any time in it; what is
    damaged is deleted, and made anew the next time."""
    index = Index(file, directory)
    try:
        yield index
    except sqlite3.OperationalError as error:
        raise NoIndexError(_reason(error, file)) from error
    except sqlite3.DatabaseError as error:
        index.close()
        with suppress(OSError):
            index.delete()
        raise NoIndexError(_reason(error, file)) from error
    finally:
        index.close()


def _reason(error: Exception, file: Path) -> str:
    if "fts5" in str(error):
        return "this Python's SQLite has no FTS5 (full-text search)"
    said = error.strerror if isinstance(error, OSError) else str(error)
    return f"its index, {file}, cannot be used: {said}"


def _row(chat: ChatSummary) -> tuple[object, ...]:
    header = lines.encode(chat.header) if chat.header else None
    name = chat.file.name
    return name, *chat.stamp, header, chat.title, chat.messages, chat.pinned, chat.problem


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0

"""The file of an open chat. Lines are appended; what was deleted goes when the chat is opened and
when it is left.

If writing fails, this is reported once and tried again, from the byte at which it stopped. Only one
program at a time writes to a file.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

from eaglechat.chat.history import lines
from eaglechat.chat.history.purging import purged
from eaglechat.chat.history.saved_chat import SavedChat
from eaglechat.hub.local.pair import Pair
from eaglechat.paths import write_atomically

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_BEYOND_EVERY_CHAT = 2**40


class ChatInUseError(OSError):
    """Another program writes to the chat."""


NotSaved = Callable[[Path, OSError], None]
"""Called once when the file cannot be written."""


class ChatLog:
    """Appends lines to one chat's file, which is created with the first of them."""

    def __init__(
        self,
        file: Path,
        not_saved: NotSaved,
        *,
        beginning: bytes = b"",
        copy_of: SavedChat | None = None,
    ) -> None:
        """`beginning` is written before the first line, and the content of the chat `copy_of`
        before that. `not_saved` is called once if the file cannot be written."""
        self.file = file
        self.is_copy = copy_of is not None
        self._copy_of = copy_of
        self._not_saved = not_saved
        self._stream: io.FileIO | None = None
        self._waiting = bytearray(beginning)
        self.is_behind = False
        """Whether some of it could not be written."""

    def add(self, *added: lines.Line) -> None:
        """Write lines, or keep them until they can be written."""
        for line in added:
            self._waiting += lines.encode(line)
        self._try_to_write()

    def try_again(self) -> None:
        """Write what could not be written before, if there is something."""
        if self.is_behind:
            self._try_to_write()

    def content(self) -> bytes:
        """The content of the file, and what could not be written yet."""
        kept = b""
        with contextlib.suppress(OSError):  # not created yet: all of it is waiting
            kept = _copied(self._copy_of) if self._copy_of else self.file.read_bytes()
        return kept + self._waiting

    def open(self) -> bool:
        """Lock the file for writing; False if another program has locked it. Raises OSError."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        stream = io.FileIO(self.file, "a+")
        if not _lock(stream):
            stream.close()
            return False
        if not _ends_with_newline(stream):
            self._waiting[:0] = b"\n"
        self._stream = stream
        return True

    def close(self) -> None:
        """Close the file. What cannot be written by now is lost."""
        self.try_again()
        stream, self._stream = self._stream, None
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()

    def purge(self) -> None:
        """Rewrite the file without what the chat no longer holds, and close it. A file that cannot
        be rewritten stays as it is."""
        with contextlib.suppress(OSError, lines.ChatFormatError):
            if self._stream is not None and not self.is_behind:
                before, raw = self.file.stat(), self.file.read_bytes()
                content = purged(self.file, raw)
                if content != raw:
                    if sys.platform == "win32":
                        # A file that is open is not replaced there.
                        self.close()
                    write_atomically(self.file, content)
                    os.utime(self.file, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.close()

    def discard(self) -> None:
        """Close the file, and delete it unless something is left in it, such as damaged lines."""
        is_ours = self._stream is not None
        self.purge()
        with contextlib.suppress(OSError):
            if is_ours and self.file.read_bytes().count(b"\n") <= len(("header", "summary")):
                self.file.unlink()

    def _try_to_write(self) -> None:
        try:
            if self._copy_of is not None:
                self._waiting[:0] = _copied(self._copy_of)
                self._copy_of = None
            if self._stream is None and not self.open():
                raise ChatInUseError
            assert self._stream is not None
            while self._waiting:
                del self._waiting[: self._stream.write(self._waiting)]
            self.is_behind = False
        except OSError as error:
            if not self.is_behind:
                self._not_saved(self.file, error)
            self.is_behind = True


def new_log(directory: Path, pair: Pair, not_saved: NotSaved) -> ChatLog:
    """The log of a new chat, named after the present time."""
    now = datetime.datetime.now().astimezone()
    target, draft = pair.to_load
    header = lines.ChatHeader(
        created=now.isoformat(timespec="seconds"),
        pair=pair.name,
        target=target,
        draft=draft,
        version=lines.VERSION,
        server=pair.server.url if pair.server else "",
    )
    return ChatLog(_named_after(directory, now), not_saved, beginning=lines.encode(header))


def resumed_log(chat: SavedChat, not_saved: NotSaved) -> ChatLog:
    """The log of a resumed chat; of a copy of it if another program has the chat open."""
    log = ChatLog(chat.file, not_saved)
    try:
        if log.open():
            log.purge()
        if log.open():
            return log
    except OSError:
        # The first `add` reports it.
        return log
    now = datetime.datetime.now().astimezone()
    return ChatLog(_named_after(chat.file.parent, now), not_saved, copy_of=chat)


def _named_after(directory: Path, now: datetime.datetime) -> Path:
    return directory / f"{now:%Y-%m-%d_%H%M%S.%f}.jsonl"


def _copied(chat: SavedChat) -> bytes:
    """The file as far as it was read; the other program may have added to it since."""
    with chat.file.open("rb") as stream:
        copied = stream.read(chat.size)
    return copied if copied.endswith(b"\n") else copied + b"\n"


def _lock(stream: io.FileIO) -> bool:
    """Lock a file until the stream is closed; False if another program has locked it.

    True on a file system without locks.
    """
    try:
        if sys.platform == "win32":
            stream.seek(_BEYOND_EVERY_CHAT)
            msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True


def _ends_with_newline(stream: io.FileIO) -> bool:
    """False if a crash cut the last line short."""
    if stream.seek(0, os.SEEK_END) == 0:
        return True
    stream.seek(-1, os.SEEK_END)
    return stream.read(1) == b"\n"

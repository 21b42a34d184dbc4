"""Deleted chats: moved aside, brought back on request, and gone for good after a month."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from eaglechat.chat.history.naming import check_free

KEPT_DAYS = 30
"""How long a deleted chat can be brought back."""
_NAME = re.compile(r"(\d+)\.(.+\.jsonl)")


class Trash:
    """A folder of deleted chats, each named after the moment and the file that it was."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock

    def take(self, file: Path) -> None:
        """Delete a chat. Raises OSError, ChatInUseError among them."""
        check_free(file)
        self._folder.mkdir(parents=True, exist_ok=True)
        file.rename(self._folder / f"{int(self._clock() * 1000)}.{file.name}")

    def restore(self, directory: Path) -> Path | None:
        """Restore the chat that was deleted last; None where there is none. Raises OSError."""
        deleted = max(self._deleted(), default=None)
        if deleted is None:
            return None
        _, name, file = deleted
        place = directory / name
        if place.exists():
            raise FileExistsError(f"there is another {name} now")
        directory.mkdir(parents=True, exist_ok=True)
        return file.rename(place)

    def empty(self) -> None:
        """Delete for good what was deleted more than `KEPT_DAYS` ago."""
        oldest = (self._clock() - KEPT_DAYS * 86400) * 1000
        for deleted_at, _, file in self._deleted():
            if deleted_at < oldest:
                with suppress(OSError):
                    file.unlink()

    def _deleted(self) -> Iterator[tuple[int, str, Path]]:
        for file in self._folder.glob("*.jsonl"):
            if name := _NAME.fullmatch(file.name):
                yield int(name[1]), name[2], file

"""The chats on disk, read in the background so that words can be found in them."""

from __future__ import annotations

import threading
from pathlib import Path

from eaglechat.chat.history.folder import ChatFolder, ReadProgress


class ChatsService:
    """`folder` has the chats; `progress` is how many are read, None if none is being read."""

    def __init__(self, directory: Path) -> None:
        self.folder = ChatFolder(directory)
        self.progress: ReadProgress | None = None
        self.version = 0
        """Grows whenever something else can be found."""
        self._thread: threading.Thread | None = None

    def update(self) -> None:
        """Read the chats that changed. It goes on when the list is closed; quitting ends it."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._update, name="chats", daemon=True)
            self._thread.start()

    def _update(self) -> None:
        try:
            for progress in self.folder.read():
                self.progress = progress if progress.done < progress.total else None
                self.version += 1
        finally:
            self.progress = None
            self.version += 1

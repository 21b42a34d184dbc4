"""The chats on disk, and the index of them, which is brought up to date in the background."""

from __future__ import annotations

import threading
from pathlib import Path

from eaglechat.chat.search.build import Progress
from eaglechat.chat.search.shelf import ChatShelf


class ChatsService:
    """`shelf` has the chats; `progress` is how far the index is, None while nothing is done."""

    def __init__(self, directory: Path) -> None:
        self.shelf = ChatShelf(directory)
        self.progress: Progress | None = None
        self.version = 0
        """Grows whenever more can be found."""
        self._thread: threading.Thread | None = None

    def update(self) -> None:
        """Bring the index up to date. It goes on when the list is closed; quitting ends it, and
        what was done by then stays."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._update, name="chats", daemon=True)
            self._thread.start()

    def _update(self) -> None:
        try:
            for progress in self.shelf.update():
                self.progress = progress if progress.done < progress.total else None
                self.version += 1
        finally:
            self.progress = None
            self.version += 1

"""What the app hands to its screens."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path

from textual.signal import Signal

from eaglechat.chat.history.folder import ChatFolder, ReadProgress
from eaglechat.chat.writing.question import QuestionParts, parts_of
from eaglechat.hub.desk import HubDesk
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import PairLibrary
from eaglechat.tui.services.away import Away
from eaglechat.tui.services.engine import EngineService
from eaglechat.tui.services.settings import SettingsService
from eaglechat.wire.protocol import Auto


@dataclass
class Typeahead:
    """What is typed while models are loading; `is_sent` is whether it will be sent."""

    parts: QuestionParts = ()
    is_sent: bool = False

    def add(self, text: str) -> None:
        """Take over what was typed before a screen for it was there."""
        if text:
            self.parts, self.is_sent = (*self.parts, *parts_of(text)), False

    def take(self) -> Typeahead:
        """Return what was typed, and forget it."""
        taken = Typeahead(self.parts, self.is_sent)
        self.parts, self.is_sent = (), False
        return taken


class ChatReader:
    """Reads the chats on disk in a thread, so that words can be found in them."""

    def __init__(self, directory: Path) -> None:
        self.folder = ChatFolder(directory)
        self.progress: ReadProgress | None = None
        """How many chats are read; None while none is being read."""
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


@dataclass(frozen=True)
class Services:
    """What screens share besides their own widgets."""

    engine: EngineService
    settings: SettingsService
    pairs: PairLibrary
    n_draft_max: int | Auto | None
    """The draft length of the command line, for every pair."""
    desk: HubDesk
    models_changed: Signal[None]
    """Published when models were installed or deleted."""
    chats: ChatReader
    typeahead: Typeahead
    away: Away

    def as_chosen(self, pair: Pair) -> Pair:
        """The pair with the draft length that a chat begins with, if it is not the settings'."""
        if self.n_draft_max is not None:
            return replace(pair, n_draft_max=self.n_draft_max)
        return self.pairs.as_kept(pair)

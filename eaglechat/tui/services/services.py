"""The services the app hands to its screens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eaglechat.hub.desk import HubDesk
from eaglechat.hub.local.pairs import PairLibrary
from eaglechat.tui.services.away import Away
from eaglechat.tui.services.chats import ChatsService
from eaglechat.tui.services.engine import EngineService
from eaglechat.tui.services.installs import InstallWatch
from eaglechat.tui.services.servers import ServerWatch
from eaglechat.tui.services.settings import SettingsService


@dataclass
class Typeahead:
    """What is typed while models are loading; `is_sent` is whether it will be sent."""

    text: str = ""
    is_sent: bool = False

    def take(self) -> Typeahead:
        """Return what was typed, and forget it."""
        taken = Typeahead(self.text, self.is_sent)
        self.text, self.is_sent = "", False
        return taken


@dataclass(frozen=True)
class Services:
    """What screens share besides their own widgets."""

    engine: EngineService
    settings: SettingsService
    pairs: PairLibrary
    desk: HubDesk
    installs: InstallWatch
    chats_dir: Path
    chats: ChatsService
    typeahead: Typeahead
    away: Away
    servers: ServerWatch

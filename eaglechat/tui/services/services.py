"""What the app hands to its screens."""

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
from eaglechat.tui.services.typeahead import Typeahead


@dataclass(frozen=True)
class Services:
    """What a screen may use beside its own widgets; where to go next it asks by a message of
    `tui.navigation`."""

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

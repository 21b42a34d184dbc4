"""What the app hands to its screens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.signal import Signal

from eaglechat.chat.controls import first_controls
from eaglechat.chat.recording import TurnPart
from eaglechat.hub.desk import HubDesk
from eaglechat.hub.local.pair_library import PairLibrary
from eaglechat.hub.local.pairs import Pair
from eaglechat.hub.local.speeds import Gain, setup_of
from eaglechat.settings.config_file import SettingsFileError, save_setting
from eaglechat.settings.description import SettingDoc
from eaglechat.settings.model import Settings
from eaglechat.tui.services.desktop import Away
from eaglechat.tui.services.engine import EngineService
from eaglechat.wire.protocol import Auto

if TYPE_CHECKING:
    from eaglechat.chat.saved_chat import SavedChat
    from eaglechat.chat.store import ChatStore


@dataclass(frozen=True)
class Services:
    """What screens share besides their own widgets."""

    engine: EngineService
    settings: SettingsService
    pairs: PairLibrary
    n_draft_max: int | Auto | None
    """The draft length of the command line, for every pair."""
    desk: HubDesk
    leave_chat: Callable[[Callable[[], None]], None]
    """Calls what leaves the open chat. As the next three, it asks the user first if that chat is
    not saved. They close everything above the menu."""
    open_menu: Callable[[], None]
    load_instead: Callable[[Pair], None]
    resume: Callable[[SavedChat], None]
    models_changed: Signal[None]
    """Published when models were installed or deleted."""
    chats_changed: Signal[None]
    """Published when those of earlier versions were taken over."""
    chats_file: Path
    say_of_chats: Callable[[str], None]
    typed_ahead: list[TurnPart]
    """What was typed for a chat that is not there: the next prompt begins with it."""
    away: Away

    @cached_property
    def chats(self) -> ChatStore:
        # The menu is shown before this is read.
        from eaglechat.chat.store import ChatStore  # noqa: PLC0415

        return ChatStore(self.chats_file, self.say_of_chats)

    def as_chosen(self, pair: Pair) -> Pair:
        """The pair with the draft length that a chat begins with, if it is not the settings'."""
        if self.n_draft_max is not None:
            return replace(pair, n_draft_max=self.n_draft_max)
        return self.pairs.as_kept(pair)

    def gain(self, pair: Pair) -> Gain | None:
        """What was measured here with the draft length that the pair's next chat begins with."""
        settings = self.settings.current
        controls = first_controls(settings, self.as_chosen(pair))
        if not controls.enabled:
            return None
        setup = setup_of(pair, settings.engine, controls.drafter)
        return self.pairs.speeds.gain(setup, controls.n_draft_max)


class SettingsService:
    """Has the settings in force; subscribers of `changed` get those before and after each
    change."""

    def __init__(self, app: App[Any], settings: Settings, file: Path) -> None:
        """The user is told if a change cannot be written to `file`."""
        self.current = settings
        self.file = file
        self.changed: Signal[tuple[Settings, Settings]] = Signal(app, "settings")
        self._app = app

    def choices(self, doc: SettingDoc) -> tuple[str, ...]:
        """All the words of a setting that takes only a few."""
        if doc.name == "interface.theme":
            return tuple(sorted(self._app.available_themes))
        return ("on", "off") if doc.kind is bool else doc.choices

    def value(self, doc: SettingDoc) -> Any:
        """The value in force, one of its words if it has some."""
        value = getattr(getattr(self.current, doc.table), doc.key)
        if doc.name == "interface.theme" and value not in self._app.available_themes:
            return self._app.theme
        return {True: "on", False: "off"}[value] if doc.kind is bool else value

    def choose(self, doc: SettingDoc, word: str) -> None:
        self.change(doc.table, doc.key, word == "on" if doc.kind is bool else word)

    def change(self, table: str, key: str, value: Any) -> None:
        """Put a valid value in force and write it to the file; None removes the setting."""
        before = self.current
        if value is None:
            self.current = before.without_value(table, key)
        else:
            self.current = before.with_value(table, key, value)
        try:
            save_setting(self.file, table, key, value)
        except SettingsFileError as error:
            said = f"{error}. The change holds until you quit."
            self._app.notify(said, severity="error")
        self.changed.publish((before, self.current))

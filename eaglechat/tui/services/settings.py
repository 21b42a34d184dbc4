"""The settings in force, and changing them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textual.app import App
from textual.signal import Signal

from eaglechat.settings import Settings
from eaglechat.settings.config_file import SettingsFileError, save_setting


@dataclass(frozen=True)
class SettingsChange:
    """The settings before and after a change."""

    before: Settings
    after: Settings


class SettingsService:
    """Has the settings in force; subscribers of `changed` are told of each change."""

    def __init__(self, app: App[Any], settings: Settings, file: Path) -> None:
        """The user is told if a change cannot be written to `file`."""
        self.current = settings
        self.file = file
        self.changed: Signal[SettingsChange] = Signal(app, "settings")
        self._app = app

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
        self.changed.publish(SettingsChange(before, self.current))

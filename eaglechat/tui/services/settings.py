"""The settings in force, and changing them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textual.dom import DOMNode
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

    def __init__(
        self, owner: DOMNode, settings: Settings, file: Path, complain: Callable[[str], None]
    ) -> None:
        """`complain` gets a sentence if a change cannot be written to `file`."""
        self.current = settings
        self.file = file
        self.changed: Signal[SettingsChange] = Signal(owner, "settings")
        self._complain = complain

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
            self._complain(f"{error}. The change holds until you quit.")
        self.changed.publish(SettingsChange(before, self.current))

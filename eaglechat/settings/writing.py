"""Writes single settings to config.toml and keeps the rest of the file, including comments."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from eaglechat.paths import write_atomically

_BOM = "\ufeff"
"""The byte order mark that editors on Windows put at the beginning of a file."""


class SettingsFileError(RuntimeError):
    """The configuration file could not be changed. The text says why, in one sentence."""


def save_setting(path: Path, table: str, key: str, value: Any) -> None:
    """Set `table.key` in the file, which is created if it is missing. None removes the setting.

    Raises SettingsFileError.
    """
    try:
        before = path.read_bytes().decode() if path.exists() else ""
        write_atomically(path, _changed(before, table, key, value).encode())
    except (OSError, UnicodeDecodeError, TOMLKitError, TypeError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingsFileError(f"{path} was not changed: {why}") from error


def _changed(before: str, table: str, key: str, value: Any) -> str:
    """The text of the file with the change. Raises TOMLKitError, TypeError."""
    bom, newline = before.startswith(_BOM), "\r\n" if "\r\n" in before else "\n"
    document = tomlkit.parse(before.removeprefix(_BOM).replace("\r\n", "\n"))
    if value is None and table not in document:
        return before
    section = document.setdefault(table, tomlkit.table())
    if not isinstance(section, MutableMapping):
        raise TypeError(f"{table} is not a table")
    if value is None:
        section.pop(key, None)
    else:
        section[key] = list(value) if isinstance(value, tuple) else value
    return _BOM * bom + tomlkit.dumps(document).replace("\n", newline)

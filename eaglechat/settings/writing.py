"""Writes single settings into config.toml and leaves the rest of it, comments and all, as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from eaglechat.paths import write_atomically


class SettingsFileError(RuntimeError):
    """The configuration file could not be changed; the text says why, in one sentence."""


def save_setting(path: Path, table: str, key: str, value: Any) -> None:
    """Set `table.key` in the file, which is made if it is missing; None takes it out.

    Raises SettingsFileError.
    """
    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else None
        document = document if document is not None else tomlkit.document()
        section = document.setdefault(table, tomlkit.table())
        if value is None:
            section.pop(key, None)
        else:
            section[key] = list(value) if isinstance(value, tuple) else value
        write_atomically(path, tomlkit.dumps(document).encode())
    except (OSError, UnicodeDecodeError, TOMLKitError, TypeError) as error:
        raise SettingsFileError(f"{path} was not changed: {error}") from error

"""Reads config.toml, and changes single settings in it.

Each setting is checked by itself: a bad value is reported with its file and key and replaced by the
default, and the other settings keep their values. A change keeps the rest of the file, including
comments.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from eaglechat.paths import changing, write_atomically
from eaglechat.settings.description import (
    SettingDoc,
    WrongValueError,
    check,
    describe,
    find,
    parse,
    written,
)
from eaglechat.settings.model import TABLES, ServerSettings, Settings

_BOM = "\ufeff"
"""The byte order mark that editors on Windows put at the beginning of a file."""


class SettingsFileError(RuntimeError):
    """The configuration file could not be changed. The text says why, in one sentence."""


@dataclass(frozen=True)
class Problem:
    """What was not used of a file that the user may write, and why."""

    file: Path
    key: str
    """Such as `table.key`; empty for the whole file."""
    reason: str
    """What is wrong with the value, and what is used instead. It continues a sentence whose subject
    is the key."""

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}".rstrip(" ")
        return f"{where} {self.reason}"


def load(path: Path) -> tuple[Settings, list[Problem]]:
    """Read a configuration file. If it is missing, all settings have their defaults."""
    try:
        raw = msgspec.toml.decode(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return Settings(), []
    except (OSError, ValueError, RecursionError) as error:
        # ValueError: wrong TOML, wrong UTF-8, or an integer with thousands of digits.
        why = getattr(error, "strerror", None) or error
        return Settings(), [Problem(path, "", f"cannot be read ({why}); using the defaults")]
    return from_mapping(raw, path)


def from_mapping(raw: Mapping[str, Any], path: Path) -> tuple[Settings, list[Problem]]:
    """Validate tables of values, each key by itself. The problems name `path` as their file."""
    settings, problems = Settings(), list[Problem]()
    for table, given in raw.items():
        if table == "server":
            servers, wrong = _read_servers(given)
            settings = msgspec.structs.replace(settings, server=servers)
            problems += [Problem(path, "server", reason) for reason in wrong]
        elif table not in TABLES:
            reason = f"is not a table of settings, and is ignored; {_nearest_table(table)}"
            problems.append(Problem(path, table, reason))
        elif not isinstance(given, Mapping):
            reason = f"must be a table: write [{table}], and its settings on the lines below it"
            problems.append(Problem(path, table, f"{reason}; using the defaults"))
        else:
            for key, value in given.items():
                try:
                    settings = settings.with_value(table, key, _checked(table, key, value))
                except ValueError as error:
                    problems.append(Problem(path, f"{table}.{key}", str(error)))
    return settings, problems


def _read_servers(raw: Any) -> tuple[tuple[ServerSettings, ...], list[str]]:
    """The valid entries, and for each other entry why it is left out."""
    if not isinstance(raw, list):
        return (), ["must be a list of tables: write [[server]], and its keys on the lines below"]
    servers: dict[str, ServerSettings] = {}
    wrong: list[str] = []
    for number, entry in enumerate(raw, 1):
        try:
            server = msgspec.convert(entry, ServerSettings)
        except msgspec.ValidationError as error:
            wrong.append(f"number {number} is left out: {error}")
            continue
        if server.name in servers:
            wrong.append(f"number {number} is left out: there is another “{server.name}”")
        else:
            servers[server.name] = server
    return tuple(servers.values()), wrong


def _checked(table: str, key: str, value: Any) -> Any:
    """The valid value. Raises ValueError with the reason and the consequence."""
    try:
        doc = find(table, key)
    except KeyError:
        raise ValueError(f"is not a setting, and is ignored; {_nearest(table, key)}") from None
    try:
        return check(doc, value)
    except WrongValueError as error:
        default = written(doc.default) or "which is empty"
        instead = f"using the default, {default}" if doc.default is not None else "it is ignored"
        raise ValueError(f"{error}; {instead}") from None


def parse_assignment(text: str) -> tuple[SettingDoc, Any]:
    """The setting and the value of `table.key=value`. Raises ValueError with what is wrong."""
    name, equals, value = text.partition("=")
    table, _, key = name.strip().partition(".")
    if not equals:
        raise ValueError(f"{text} has no value: write table.key=value")
    try:
        doc = find(table, key)
    except KeyError:
        raise ValueError(f"{name.strip()} is not a setting; {_nearest(table, key)}") from None
    try:
        return doc, parse(doc, value)
    except WrongValueError as error:
        raise ValueError(f"{doc.name} {error}") from None


def _nearest(table: str, key: str) -> str:
    """A hint at the setting that a misspelled name probably means."""
    docs = {doc.key: doc for doc in describe()}
    wanted = key or table
    near = [known for known in docs if len(wanted) > 2 and known.startswith(wanted)]
    if near := near or get_close_matches(wanted, docs, 1):
        return f"did you mean {docs[near[0]].name}?"
    siblings = [doc.key for doc in docs.values() if doc.table == table]
    return f"[{table}] has {', '.join(siblings)}" if siblings else _nearest_table(table)


def _nearest_table(table: str) -> str:
    if near := get_close_matches(table, TABLES, 1):
        return f"did you mean [{near[0]}]?"
    return f"the tables are {', '.join(TABLES)}"


def save_setting(path: Path, table: str, key: str, value: Any) -> None:
    """Set `table.key` in the file, which is created if it is missing. None removes the setting.

    Raises SettingsFileError.
    """
    # Imported late: most commands only read the file.
    import tomlkit  # noqa: PLC0415
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    try:
        with changing(path):
            before = path.read_bytes().decode() if path.exists() else ""
            bom, newline = before.startswith(_BOM), "\r\n" if "\r\n" in before else "\n"
            document = tomlkit.parse(before.removeprefix(_BOM).replace("\r\n", "\n"))
            if value is None and table not in document:
                return
            section = document.setdefault(table, tomlkit.table())
            if not isinstance(section, MutableMapping):
                raise TypeError(f"{table} is not a table")
            if value is None:
                section.pop(key, None)
            else:
                section[key] = list(value) if isinstance(value, tuple) else value
            text = _BOM * bom + tomlkit.dumps(document).replace("\n", newline)
            write_atomically(path, text.encode())
    except (OSError, UnicodeDecodeError, TOMLKitError, TypeError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingsFileError(f"{path} was not changed: {why}") from error

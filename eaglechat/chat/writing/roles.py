"""Roles: system prompts with sampling settings, each in a TOML file with the name of the role."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from eaglechat.settings.description import WrongValueError, check, describe
from eaglechat.settings.model import Settings

NO_ROLE = "none"
"""The name that stands for no role."""
_MOST_BYTES = 200_000
_KEYS = {doc.key: doc for doc in describe() if doc.table == "generation" and doc.key != "role"}

TEMPLATE = '''description = ""
system_prompt = """
You are …
"""

# Keys of [generation] in config.toml that the role changes:
# temperature = 0.7
# top_p = 0.95
'''
"""The file of a new role."""


@dataclass(frozen=True)
class Role:
    """A role. `values` are settings of `[generation]`, by key."""

    name: str
    description: str
    values: Mapping[str, Any]

    def applied(self, settings: Settings) -> Settings:
        for key, value in self.values.items():
            settings = settings.with_value("generation", key, value)
        return settings


def load_roles(directory: Path) -> tuple[list[Role], list[str]]:
    """The roles of a directory, sorted by name, and what is wrong with the files that are
    skipped, without full stops."""
    try:
        read = [*map(read_role, sorted(directory.glob("*.toml")))]
    except OSError:
        read = []
    roles = [one for one in read if isinstance(one, Role)]
    return roles, [one for one in read if isinstance(one, str)]


def find_role(directory: Path, name: str) -> Role | str | None:
    """The role of this name, or what is wrong with its file, without a full stop; None if there is
    none."""
    file = directory / f"{name}.toml"
    if not is_name(name):
        return None
    with suppress(OSError):  # read_role reports it
        if not file.is_file():
            return None
    return read_role(file)


def is_name(name: str) -> bool:
    if name == NO_ROLE or not name.isprintable():
        return False
    return bool(name) and not set(name) & set('/\\:*?"<>|') and name[0] != "."


def read_role(file: Path) -> Role | str:
    """The role in a file, or what is wrong with the file, without a full stop."""
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            return f"{file} is longer than {_MOST_BYTES:,} bytes"
        table = msgspec.toml.decode(content.decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return f"{file} cannot be read: {getattr(error, 'strerror', None) or error}"
    description = table.pop("description", "")
    if not isinstance(description, str):
        return f"{file}: description must be text"
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            return f"{file}: {key} is no key of a role; there are {', '.join(_KEYS)}"
        try:
            values[key] = check(_KEYS[key], value)
        except WrongValueError as error:
            return f"{file}: {key} {error}"
    return Role(file.stem, " ".join(description.split()), values)

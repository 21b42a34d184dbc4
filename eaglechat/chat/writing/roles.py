"""Roles: system prompts with sampling settings, each in a TOML file with the name of the role."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from eaglechat.settings import Settings, describe
from eaglechat.settings.description import WrongValueError, check

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NO_ROLE = "none"
"""The name that stands for no role."""
MOST_BYTES = 200_000
KEYS = {doc.key: doc for doc in describe() if doc.table == "generation" and doc.key != "role"}

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
    file: Path

    def applied(self, settings: Settings) -> Settings:
        """The settings with those of the role."""
        for key, value in self.values.items():
            settings = settings.with_value("generation", key, value)
        return settings


class WrongRole(Enum):
    """What is wrong with the file of a role."""

    TOO_LONG = auto()
    UNREADABLE = auto()
    NO_TEXT = auto()
    UNKNOWN_KEY = auto()
    WRONG_VALUE = auto()


@dataclass(frozen=True)
class RoleProblem:
    """Why a role cannot be used. `cause` says why the file is unreadable, in the words of the
    operating system or the TOML reader, or why a value is wrong, in those of its setting."""

    file: Path
    what: WrongRole
    key: str = ""
    cause: str = ""


def load_roles(directory: Path) -> tuple[list[Role], list[RoleProblem]]:
    """The roles of a directory, sorted by name, and the problems of the files that are skipped."""
    roles: list[Role] = []
    problems: list[RoleProblem] = []
    try:
        files = sorted(directory.glob("*.toml"))
    except OSError:
        files = []
    for file in files:
        read = read_role(file)
        if isinstance(read, Role):
            roles.append(read)
        else:
            problems.append(read)
    return roles, problems


def find_role(directory: Path, name: str) -> Role | RoleProblem | None:
    """The role of this name, or why it cannot be used; None if there is none."""
    file = directory / f"{name}.toml"
    if not is_name(name):
        return None
    with suppress(OSError):  # read_role reports it
        if not file.is_file():
            return None
    return read_role(file)


def is_name(name: str) -> bool:
    """Whether a role can have this name."""
    if name == NO_ROLE or not name.isprintable():
        return False
    return bool(name) and not set(name) & set('/\\:*?"<>|') and name[0] != "."


def read_role(file: Path) -> Role | RoleProblem:
    """Read and check the file of a role."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            return RoleProblem(file, WrongRole.TOO_LONG)
        table = tomllib.loads(content.decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        return RoleProblem(file, WrongRole.UNREADABLE, cause=cause)
    description = table.pop("description", "")
    if not isinstance(description, str):
        return RoleProblem(file, WrongRole.NO_TEXT, "description")
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in KEYS:
            return RoleProblem(file, WrongRole.UNKNOWN_KEY, key)
        try:
            values[key] = check(KEYS[key], value)
        except WrongValueError as error:
            return RoleProblem(file, WrongRole.WRONG_VALUE, key, str(error))
    return Role(file.stem, " ".join(description.split()), values, file)

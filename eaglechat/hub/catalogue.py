"""The catalogue of pairs: those shipped in catalogue.toml, and the user's own.

An invalid entry is reported with its file and key, and left out; the other entries are read. A key
that an entry may not have is reported, and costs it nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from eaglechat import paths
from eaglechat.hub.references import ModelSource, RepoName
from eaglechat.settings.config_file import Problem
from eaglechat.wire.drafters import DrafterKind

SHIPPED = Path(__file__).with_name("catalogue.toml")

_SHAPES = {
    "name": "must be small letters, digits, '.', '-' or '_'",
    **dict.fromkeys(("repo", "checkpoint", "base_model"), "must be user/repo"),
    "file": "must end in .gguf",
    "revision": "must be a branch, a tag or a commit",
    "sha256": "must be 64 hexadecimal digits",
}
"""The patterns of a name and of a source in words, by the key that they apply to."""


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A target and a draft for it, if it needs one. Unknown fields are empty."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*\Z")]
    target: ModelSource
    draft: ModelSource = ModelSource()
    title: str = ""
    drafter: DrafterKind | None = None
    """What drafts, for a list; the headers tell once the Hub is asked. A checkpoint is
    EAGLE-3 if this is None."""
    base_model: RepoName | None = None
    """The model the target is a quantisation of, as the Hub names it."""
    architecture: str | None = None
    licence: str = ""
    acceptance: str = ""
    speed_up: Annotated[float, Meta(gt=0)] | None = None
    """How many times as fast as plain decoding somebody published; `acceptance` says who."""
    note: str = ""

    def __post_init__(self) -> None:
        if not (self.target.repo or self.target.path):
            raise ValueError("its target needs either repo (on the Hub) or path (on this machine)")
        if self.draft.path:
            raise ValueError("its draft needs either repo (a GGUF) or checkpoint (to convert)")

    @property
    def size(self) -> int | None:
        """Bytes of both files; None if one is unknown."""
        draft = self.draft.size if self.draft else 0
        if self.target.size is None or draft is None:
            return None
        return self.target.size + draft


def load(user_file: Path | None = None) -> tuple[list[CatalogueEntry], list[Problem]]:
    """All entries and all problems. A user's entry replaces the shipped one of the same name."""
    entries, problems = read(SHIPPED)
    own, own_problems = read(user_file or paths.user_catalogue())
    by_name = {entry.name: entry for entry in (*entries, *own)}
    return list(by_name.values()), problems + own_problems


def remember(entry: CatalogueEntry, user_file: Path | None = None) -> bool:
    """Append a pair to the user's catalogue; False if a pair has its name. Raises OSError."""
    path = user_file or paths.user_catalogue()
    with paths.changing(path):
        if any(known.name == entry.name for known in load(path)[0]):
            return False
        import tomlkit  # noqa: PLC0415 - the menu is shown before anything is written

        added = tomlkit.dumps({"pair": [_without_empty(msgspec.to_builtins(entry))]})
        # Appended, not parsed: whatever the user wrote there stays, even if it is not valid TOML.
        written = path.read_bytes() if path.exists() else b""
        paths.write_atomically(path, written + f"\n{added}".encode())
    return True


def _without_empty(table: dict[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in table.items() if value}
    return {k: _without_empty(v) if isinstance(v, dict) else v for k, v in given.items()}


def read(path: Path) -> tuple[list[CatalogueEntry], list[Problem]]:
    """The entries of one file, and its problems."""
    try:
        raw = msgspec.toml.decode(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return [], []
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        return [], [Problem(path, "", f"cannot be read ({why})")]
    problems = [
        Problem(path, key, "is unknown; pairs are written as [[pair]]")
        for key in raw.keys() - {"pair"}
    ]
    listed = raw.get("pair", [])
    if not isinstance(listed, list):
        return [], [*problems, Problem(path, "pair", "must be written as [[pair]]")]
    entries: dict[str, CatalogueEntry] = {}
    for number, given in enumerate(listed, start=1):
        try:
            entry = msgspec.convert(given, CatalogueEntry)
        except msgspec.ValidationError as error:
            problems.append(_problem(path, number, given, error))
            continue
        if entry.name in entries:
            problems.append(Problem(path, f"pair {entry.name}", "is given twice"))
        entries[entry.name] = entry
        problems += [
            Problem(path, f"pair {entry.name}: {key}", "is unknown")
            for key in given
            if key not in CatalogueEntry.__struct_fields__
        ]
    return list(entries.values()), problems


def _problem(path: Path, number: int, given: Any, error: msgspec.ValidationError) -> Problem:
    """msgspec's message ends in `... - at `$.target.size``. An entry without a name is counted."""
    reason, _, place = str(error).partition(" - at ")
    name = given.get("name", number) if isinstance(given, dict) else number
    key = place.strip("`").removeprefix("$").lstrip(".")
    reason = f"is wrong: {reason[:1].lower()}{reason[1:]}".replace("`", "")
    if "matching regex" in reason:
        reason = _SHAPES[key.rpartition(".")[2]]
    return Problem(path, f"pair {name}{': ' + key if key else ''}", reason)

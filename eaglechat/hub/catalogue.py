"""The catalogue of pairs: those shipped in catalogue.toml, and the user's own.

An invalid entry is reported with its file and key, and left out; the other entries are read.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from eaglechat import paths
from eaglechat.hub.references import REVISION, HubReference
from eaglechat.wire.protocol import DrafterKind

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = Path(__file__).with_name("catalogue.toml")

RepoName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*\Z")]
GGUFName = Annotated[str, Meta(pattern=r"\.gguf\Z")]
Revision = Annotated[str, Meta(pattern=REVISION)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Size = Annotated[int, Meta(ge=1)]

_REPO_SHAPE = "must be user/repo"
_SHAPES = {
    "name": "must be small letters, digits, '.', '-' or '_'",
    "repo": _REPO_SHAPE,
    "checkpoint": _REPO_SHAPE,
    "base_model": _REPO_SHAPE,
    "trained_for": _REPO_SHAPE,
    "file": "must end in .gguf",
    "revision": "must be a branch, a tag or a commit",
    "sha256": "must be 64 hexadecimal digits",
}
"""The patterns above in words, by the key that they apply to."""


class ModelSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a model comes from: a GGUF in `repo`, by file (of a split one, the first) or by
    quantisation, a `checkpoint` that is converted after its download, or the `path` of a GGUF on
    this machine. With none of them it is no model, and false."""

    repo: RepoName = ""
    checkpoint: RepoName = ""
    path: str = ""
    file: GGUFName | None = None
    quantization: str | None = None
    revision: Revision = "main"
    size: Size | None = None
    """Bytes when the catalogue was written, for display; a download uses the Hub's size."""
    sha256: Sha256 | None = None

    def __post_init__(self) -> None:
        n_places = sum(map(bool, (self.repo, self.checkpoint, self.path)))
        of_file = (self.file, self.quantization, self.sha256)
        if n_places > 1 or (n_places == 0 and any((*of_file, self.size))):
            raise ValueError(
                "needs either repo (a GGUF), checkpoint (to convert) or path (on this machine)"
            )
        if any(of_file) and not self.repo:
            raise ValueError("only a repo has file, quantization or sha256 beside it")
        if self.file and self.quantization:
            raise ValueError("names a file and a quantisation: leave one of them out")

    def __bool__(self) -> bool:
        return bool(self.of_hub or self.path)

    def __str__(self) -> str:
        return self.path or self.checkpoint or (str(self.reference) if self.repo else "")

    @property
    def of_hub(self) -> str:
        """The repository on the Hub; empty for a file on this machine, and for no model."""
        return self.repo or self.checkpoint

    @property
    def local(self) -> Path:
        """Where `path` leads."""
        return paths.expanded(self.path)

    @property
    def reference(self) -> HubReference:
        return HubReference(self.repo, self.quantization, self.file, self.revision)


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    trained_for: RepoName | None = None
    """The model that the draft was trained for, if it is not the base model."""
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


@dataclass(frozen=True)
class CatalogueProblem:
    """An entry that was left out, and why."""

    file: Path
    key: str
    reason: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}" if self.key else str(self.file)
        return f"{where}: {self.reason}"


def load(user_file: Path | None = None) -> tuple[list[CatalogueEntry], list[CatalogueProblem]]:
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


def read(path: Path) -> tuple[list[CatalogueEntry], list[CatalogueProblem]]:
    """The entries of one file, and its problems."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return [], []
    except (OSError, ValueError, RecursionError) as error:
        return [], [
            CatalogueProblem(
                path, "", f"cannot be read ({getattr(error, 'strerror', None) or error})"
            )
        ]
    problems = [
        CatalogueProblem(path, key, "unknown; pairs are written as [[pair]]")
        for key in raw.keys() - {"pair"}
    ]
    listed = raw.get("pair", [])
    if not isinstance(listed, list):
        return [], [*problems, CatalogueProblem(path, "pair", "is written as [[pair]]")]
    entries: dict[str, CatalogueEntry] = {}
    for number, given in enumerate(listed, start=1):
        try:
            entry = msgspec.convert(given, CatalogueEntry)
        except msgspec.ValidationError as error:
            problems.append(_problem(path, number, given, error))
            continue
        if entry.name in entries:
            problems.append(CatalogueProblem(path, f"pair {entry.name}", "is given twice"))
        entries[entry.name] = entry
    return list(entries.values()), problems


def _problem(
    path: Path, number: int, given: Any, error: msgspec.ValidationError
) -> CatalogueProblem:
    """msgspec's message ends in `... - at `$.target.size``. An entry without a name is counted."""
    reason, _, place = str(error).partition(" - at ")
    name = given.get("name", number) if isinstance(given, dict) else number
    key = place.strip("`").removeprefix("$").lstrip(".")
    reason = reason.replace("`", "")
    if "matching regex" in reason:
        reason = _SHAPES[key.rpartition(".")[2]]
    return CatalogueProblem(
        path, f"pair {name}{': ' + key if key else ''}", reason[:1].lower() + reason[1:]
    )

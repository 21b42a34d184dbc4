"""Finds the models on this machine and deletes them.

They are in the Hugging Face cache, LM Studio's and llama.cpp's folders, the user's folders, and the
folder of drafts converted here. A model's kind is read from its header, not from its name.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from itertools import chain
from pathlib import Path

from huggingface_hub import scan_cache_dir

from eaglechat import paths
from eaglechat.engine.drafters.pairing import check_headers, kind_of, kinds, takes_drafts
from eaglechat.gguf.header import GGUFError, GGUFHeader, printable, read_header
from eaglechat.gguf.preflight import PreflightError
from eaglechat.gguf.shards import shard_of, shard_paths
from eaglechat.hub.local.cache import RepoCache, cache_dir, repo_of
from eaglechat.hub.references import HubReference, choose, group_models
from eaglechat.wire.protocol import DrafterKind

_MAX_DEPTH = 6
_CHECKPOINT_SIGN = re.compile(r"eagle-?3|draft_vocab_size|speculators", re.IGNORECASE)
_WEIGHTS = ("*.safetensors", "*.bin")


class ModelKind(str, Enum):
    """What a model can be used as."""

    TARGET = "target"
    DRAFT = "draft"
    CHECKPOINT = "checkpoint"
    PLAIN = "target without drafts"
    OTHER = "other"
    BROKEN = "broken"
    UNFINISHED = "unfinished"


class Source(str, Enum):
    """Where a model was found."""

    HUGGING_FACE = "Hugging Face cache"
    LM_STUDIO = "LM Studio"
    LLAMA_CPP = "llama.cpp"
    CONVERTED = "converted here"
    FOLDER = "folder"


@dataclass(frozen=True)
class LocalModel:
    """A model on this machine. `problem` says in one sentence why it cannot be used, if so."""

    name: str
    kind: ModelKind
    source: Source
    path: Path
    """The path to load: the first file, or a checkpoint's folder."""
    files: tuple[Path, ...] = field(repr=False)
    size_bytes: int
    repo: str | None = None
    header: GGUFHeader | None = field(default=None, repr=False)
    problem: str | None = None

    @property
    def is_target(self) -> bool:
        """Whether it can write replies by itself."""
        return self.kind in (ModelKind.TARGET, ModelKind.PLAIN)


def scan(folders: Sequence[str | Path] = (), cache: Path | None = None) -> list[LocalModel]:
    """Every model on this machine, each once. `folders` are the user's."""
    places = [
        (paths.drafts_dir(), Source.CONVERTED),
        *((folder, Source.LM_STUDIO) for folder in _lm_studio_folders()),
        (_llama_cpp_folder(), Source.LLAMA_CPP),
        *((paths.expanded(own), Source.FOLDER) for own in folders),
    ]
    found: dict[Path, LocalModel] = {}
    for model in chain(_in_cache(cache or cache_dir()), *(_in_folder(*place) for place in places)):
        found.setdefault(Path(os.path.realpath(model.path)), model)
    return list(found.values())


def look_at(places: Sequence[Path]) -> list[LocalModel]:
    """The models in these folders, and these files, each once."""
    found: dict[Path, LocalModel] = {}
    for place in places:
        models = list(_in_folder(place, Source.FOLDER)) if place.is_dir() else [_file(place)]
        for model in models:
            found.setdefault(Path(os.path.realpath(model.path)), model)
    return list(found.values())


def _file(path: Path) -> LocalModel:
    try:
        files = tuple(shard_paths(path))
    except OSError:
        files = ()
    return _recognise(path.name, files or (path,), Source.FOLDER, None)


def fitting(target: LocalModel, models: Sequence[LocalModel]) -> list[LocalModel]:
    """The drafts among `models` that fit a target, by their headers."""
    return [model for model in models if why_unfit(target, model) is None]


def why_unfit(target: LocalModel, draft: LocalModel) -> str | None:
    """Why a model is no draft for a target, by their headers; None if it is one."""
    if target.header is None or draft.header is None or draft.kind is not ModelKind.DRAFT:
        return "it is not a draft"
    try:
        check_headers(target.header, draft.header)
    except PreflightError as error:
        return str(error)
    return None


def drafters_of(model: LocalModel, models: Sequence[LocalModel]) -> tuple[DrafterKind, ...]:
    """What drafts for a target, besides n-grams: its own file, and the drafts among `models` that
    fit it. Of a draft, its kind. Empty for all other files."""
    if model.header is None:
        return ()
    if model.is_target:
        drafts = [kind_of(draft.header) for draft in fitting(model, models) if draft.header]
        own = kinds(model.header, None)
        return tuple(dict.fromkeys(kind for kind in (*own, *drafts) if kind is not None))
    kind = kind_of(model.header)
    return (kind,) if kind is not None else ()


def _in_cache(cache: Path) -> Iterator[LocalModel]:
    for folder in sorted(cache.glob("models--*")):
        repo = repo_of(folder)
        for snapshot in sorted(folder.glob("snapshots/*"), key=_modified, reverse=True):
            for files in _models_under(snapshot):
                name = f"{repo}/{files[0].relative_to(snapshot).as_posix()}"
                yield _recognise(name, files, Source.HUGGING_FACE, repo)
            checkpoint = _checkpoint(snapshot, repo)
            if checkpoint:
                yield checkpoint
        for left in RepoCache(cache, repo).unfinished():
            percent = 100 * left.bytes_done // max(left.bytes_total, 1)
            is_downloading = RepoCache(cache, repo).is_downloading(left.partial)
            yield LocalModel(
                name=f"{repo}/{left.path}",
                kind=ModelKind.UNFINISHED,
                source=Source.HUGGING_FACE,
                path=left.partial,
                files=left.files,
                size_bytes=left.bytes_done,
                repo=repo,
                problem=f"It is being downloaded: {percent}% is here."
                if is_downloading
                else f"Its download stopped at {percent}%; pulling it resumes.",
            )


def _in_folder(folder: Path, source: Source) -> Iterator[LocalModel]:
    for files in _models_under(folder):
        relative = files[0].relative_to(folder)
        name = relative.as_posix() if len(relative.parts) > 1 else relative.stem
        yield _recognise(name, files, source, None)


def _models_under(folder: Path) -> Iterator[tuple[Path, ...]]:
    """The files of each model, the one to load first; of an incomplete split model, those there.

    Folders are searched _MAX_DEPTH levels deep, because links may form a circle.
    """
    names = [path.relative_to(folder).as_posix() for path in _ggufs(folder, _MAX_DEPTH)]
    models = [model.files for model in group_models(names)]
    complete = {name for files in models for name in files}
    incomplete: dict[object, list[str]] = {}
    for name in names:
        if name not in complete:
            shard = shard_of(name)
            model = (shard.stem, shard.count) if shard and shard.is_possible else name
            incomplete.setdefault(model, []).append(name)
    for files in (*models, *map(tuple, incomplete.values())):
        yield tuple(folder / file for file in files)


def _ggufs(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (OSError, ValueError):
        return
    for entry in entries:
        try:
            is_file, is_folder = entry.is_file(), entry.is_dir()
        except OSError:
            continue
        if entry.name.lower().endswith(".gguf") and is_file:
            yield Path(entry.path)
        elif depth and is_folder and not entry.name.startswith("."):
            yield from _ggufs(Path(entry.path), depth - 1)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    """A file's size in bytes; 0 if it is gone or its link is broken."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _recognise(name: str, files: tuple[Path, ...], source: Source, repo: str | None) -> LocalModel:
    name, size, header, problem = printable(name), sum(map(_size, files)), None, None
    try:
        header = _header(files[0], files[0].stat().st_mtime_ns, size)
    except (OSError, GGUFError) as error:
        kind, problem = ModelKind.BROKEN, _sentence(error)
    else:
        kind, problem = _kind(header)
    return LocalModel(name, kind, source, files[0], files, size, repo, header, problem)


@lru_cache(maxsize=256)
def _header(path: Path, _mtime_ns: int, _size: int) -> GGUFHeader:
    return read_header(path)


def _kind(header: GGUFHeader) -> tuple[ModelKind, str | None]:
    if kind_of(header) is not None:
        return ModelKind.DRAFT, None
    if not header.architecture:
        return ModelKind.OTHER, "Its header does not name its architecture."
    try:
        check_headers(header, None)
    except PreflightError as error:
        return ModelKind.OTHER, _sentence(error)
    if takes_drafts(header):
        return ModelKind.TARGET, None
    reason = f"No draft runs with models of architecture {header.architecture}."
    return ModelKind.PLAIN, reason


def _sentence(error: Exception) -> str:
    text = str((isinstance(error, OSError) and error.strerror) or error)
    return f"{text[:1].upper()}{text[1:]}."


def _checkpoint(snapshot: Path, repo: str) -> LocalModel | None:
    """The draft checkpoint in a folder, recognised by its config.json."""
    weights = [path for pattern in _WEIGHTS for path in sorted(snapshot.glob(pattern))]
    config = snapshot / "config.json"
    try:
        text = config.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    if not weights or not _CHECKPOINT_SIGN.search(text):
        return None
    files = (config, *weights, *sorted(snapshot.glob("*.index.json")))
    size = sum(map(_size, files))
    return LocalModel(repo, ModelKind.CHECKPOINT, Source.HUGGING_FACE, snapshot, files, size, repo)


def _lm_studio_folders() -> list[Path]:
    home = Path.home()
    folders = [home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]
    try:
        settings = json.loads((home / ".lmstudio" / "settings.json").read_text(encoding="utf-8"))
        folders.insert(0, Path(settings["downloadsFolder"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return folders


def _llama_cpp_folder() -> Path:
    """llama.cpp's folder for downloads; newer releases use the Hugging Face cache."""
    own = os.environ.get("LLAMA_CACHE")
    if own:
        return Path(own)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "llama.cpp"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llama.cpp"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "llama.cpp"


def find(models: Sequence[LocalModel], text: str) -> list[LocalModel]:
    """The models that `text` may mean: a listed name, a path, a file name or a Hub reference."""
    path = paths.expanded(text)
    exact = [model for model in models if text == model.name or path in (model.path, *model.files)]
    if exact:
        return exact
    stems = [model for model in models if text in (model.path.name, model.path.stem)]
    if stems:
        return stems
    repo, _, quantization = text.partition(":")
    in_repo = [model for model in models if model.repo == repo]
    if not quantization:
        return in_repo
    names = {model.name.removeprefix(f"{repo}/"): model for model in in_repo}
    try:
        return [names[choose(HubReference(repo, quantization.upper()), list(names)).first]]
    except (ValueError, KeyError):
        return []


@dataclass(frozen=True)
class Removal:
    """The files that a removal deletes, and the bytes that it frees."""

    models: tuple[LocalModel, ...]
    files: tuple[Path, ...]
    freed_bytes: int


def plan_removal(models: Sequence[LocalModel]) -> Removal:
    """The files to delete to remove these models.

    In the Hugging Face cache, a blob is deleted with every link to it, in all commits.
    Raises OSError, also if one of them is being downloaded now.
    """
    files: dict[Path, int] = {}
    for model in models:
        is_unfinished = model.kind is ModelKind.UNFINISHED
        if is_unfinished and _cache_of(model).is_downloading(model.path):
            raise OSError(errno.EBUSY, "it is being downloaded; cancel that first", model.name)
        for file in model.files:
            found = [file]
            if model.source is Source.HUGGING_FACE and file.is_symlink():
                cache, blob = _cache_of(model), file.resolve()
                found = cache.links_to(blob)
                # What a link of somebody's own leads to is not the cache's to delete.
                if blob.is_relative_to(cache.folder.resolve()):
                    found.append(blob)
            files |= {path: 0 if path.is_symlink() else _size(path) for path in found}
        if is_unfinished:
            # The file is sparse: its gaps take no disk space.
            files[model.path] = model.size_bytes
    return Removal(tuple(models), tuple(files), sum(files.values()))


def remove(removal: Removal) -> None:
    """Delete the files, and commits of the cache that are empty then. Raises OSError."""
    for file in removal.files:
        file.unlink(missing_ok=True)
    for model in removal.models:
        if model.source is Source.HUGGING_FACE:
            _delete_empty_commits(_cache_of(model).folder)


def _cache_of(model: LocalModel) -> RepoCache:
    parents = model.files[0].parents
    folder = next(parent for parent in parents if parent.name.startswith("models--"))
    return RepoCache(folder.parent, model.repo or "")


def _delete_empty_commits(folder: Path) -> None:
    """Let huggingface_hub delete the commits of a repository that have no files left."""
    if not folder.is_dir() or any(folder.glob("blobs/*.part")):
        return
    info = scan_cache_dir(folder.parent)
    empty = [
        revision.commit_hash
        for repo in info.repos
        for revision in repo.revisions
        if repo.repo_path == folder.resolve() and not revision.files
    ]
    if empty:
        info.delete_revisions(*empty).execute()

"""Takes models off the disk, and says beforehand how much that frees."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import scan_cache_dir

from eaglechat.hub.local.cache import RepoCache
from eaglechat.hub.local.library import Kind, Model, Source


@dataclass(frozen=True)
class Removal:
    """What would go: plain files, or links in the Hugging Face cache and their blobs."""

    models: tuple[Model, ...]
    files: tuple[Path, ...]
    freed_bytes: int


def plan(models: Iterable[Model]) -> Removal:
    """What removing these models takes away, and the bytes it frees.

    In the Hugging Face cache a blob goes with every link to it, whatever the commit.
    Raises OSError, also for a download that goes on: it would go on without a file.
    """
    models = tuple(models)
    for model in models:
        if model.kind is Kind.UNFINISHED and _cache(model).is_arriving(model.path):
            raise OSError(errno.EBUSY, "it is being downloaded; cancel that first", model.name)
    files: dict[Path, int] = {}
    for model in models:
        for file in model.files:
            in_cache = model.source is Source.HUGGING_FACE and model.kind is not Kind.UNFINISHED
            for path in _with_blob(file) if in_cache else [file]:
                files[path] = 0 if path.is_symlink() else path.stat().st_size
            if model.kind is Kind.UNFINISHED:
                # The gaps in it take no room.
                files[model.path] = model.size_bytes
    return Removal(models, tuple(files), sum(files.values()))


def _with_blob(file: Path) -> list[Path]:
    """A file of a snapshot, every other link to its blob, and the blob."""
    if not file.is_symlink():
        return [file]
    blob = file.resolve()
    snapshots = blob.parent.parent / "snapshots"
    links = [path for path in snapshots.rglob("*") if path.is_symlink() and path.resolve() == blob]
    return [*links, blob]


def execute(removal: Removal) -> None:
    """Remove the files, and what is left empty of their repositories. Raises OSError."""
    for file in removal.files:
        file.unlink(missing_ok=True)
    for model in removal.models:
        if model.source is Source.HUGGING_FACE:
            _tidy(_repo_folder(model))


def _cache(model: Model) -> RepoCache:
    return RepoCache(_repo_folder(model).parent, model.repo or "")


def _repo_folder(model: Model) -> Path:
    first = model.files[0]
    return next(parent for parent in first.parents if parent.name.startswith("models--"))


def _tidy(folder: Path) -> None:
    """Let huggingface_hub drop the repository's commits that hold nothing any more."""
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

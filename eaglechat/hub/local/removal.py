"""Deletes models of this machine.

What is in Ollama's store is not deleted here: other models may share its blobs, and Ollama knows.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from stat import S_ISREG

from huggingface_hub import scan_cache_dir

from eaglechat.hub.local.cache import RepoCache
from eaglechat.hub.local.library import LocalModel, ModelKind
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.stores import Source


@dataclass(frozen=True)
class Removal:
    """The files that a removal deletes, and the bytes that it frees."""

    models: tuple[LocalModel, ...]
    files: tuple[Path, ...]
    freed_bytes: int
    revisions: int = 1
    """The most revisions of a repository that lose the same file."""

    def used_by(self, pairs: Iterable[Pair]) -> list[str]:
        """The names of the pairs that need one of the files."""
        users = (
            pair.name
            for pair in pairs
            if pair.server is None
            and (self.takes(pair.target) or (pair.draft is not None and self.takes(pair.draft)))
        )
        return list(dict.fromkeys(users))

    def takes(self, file: str | Path) -> bool:
        """Whether a file, or what it is a link to, is deleted. What a deleted link leads to stays,
        unless it is one of the files too."""
        return bool({_place(file), os.path.realpath(file)} & self._places)

    @cached_property
    def _places(self) -> frozenset[str]:
        return frozenset(map(_place, self.files))


def _place(file: str | Path) -> str:
    """A file's only name, of a link its own."""
    path = Path(file)
    return str(Path(os.path.realpath(path.parent), path.name))


def plan_removal(models: Sequence[LocalModel]) -> Removal:
    """The files to delete to remove these models.

    In the Hugging Face cache, a blob is deleted with every link to it, in all commits.
    Raises OSError, also if one of them is Ollama's or is being downloaded now.
    """
    files: dict[Path, int] = {}
    revisions = 1
    for model in models:
        if model.source is Source.OLLAMA:
            names = " ".join(one.name for one in model.everywhere if one.source is Source.OLLAMA)
            said = (
                f"it is in Ollama's store, which is only read here; `ollama rm {names}` removes it"
            )
            raise PermissionError(errno.EPERM, said, model.name)
        is_unfinished = model.kind is ModelKind.UNFINISHED
        if is_unfinished and _cache_of(model).is_downloading(model.path):
            raise OSError(errno.EBUSY, "it is being downloaded; cancel that first", model.name)
        for file in model.files:
            found = [file]
            if model.source is Source.HUGGING_FACE and file.is_symlink():
                cache, blob = _cache_of(model), file.resolve()
                found = cache.links_to(blob)
                revisions = max(revisions, len(found))
                # What a link of somebody's own leads to is not the cache's to delete.
                if blob.is_relative_to(cache.folder.resolve()):
                    found.append(blob)
            files |= {path: _freed(path) for path in found}
        if is_unfinished:
            # The file is sparse: its gaps take no disk space.
            files[model.path] = model.size_bytes
    return Removal(tuple(models), tuple(files), sum(files.values()), revisions)


def _freed(file: Path) -> int:
    """The bytes that deleting a file frees: none for a link, or if it has another name."""
    try:
        stat = file.lstat()
    except OSError:
        return 0
    return stat.st_size if S_ISREG(stat.st_mode) and stat.st_nlink == 1 else 0


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

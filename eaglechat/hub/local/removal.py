"""Deletes models of this machine.

What is in Ollama's store is not deleted here: other models may share its blobs, and Ollama knows.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from huggingface_hub import DeleteCacheStrategy

from eaglechat.hub.local.cache import RepoCache, hops
from eaglechat.hub.local.model import LocalModel, ModelKind, Source
from eaglechat.hub.local.pairs import Pair


@dataclass(frozen=True)
class Removal:
    """The files that a removal deletes, each with the bytes that this frees."""

    models: tuple[LocalModel, ...]
    files: Mapping[Path, int]
    revisions: int = 1
    """The most revisions of a repository that lose the same file."""

    @property
    def freed_bytes(self) -> int:
        return sum(self.files.values())

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
        """Whether a file, or a link on the way to it, is deleted. What a deleted link leads to
        stays, unless it is one of the files too."""
        return any(hop in self.files for hop in hops(Path(file)))


def plan_removal(models: Sequence[LocalModel]) -> Removal:
    """The files to delete to remove these models, and nothing of their copies elsewhere.

    In the Hugging Face cache, a blob is deleted with every link to it, in all commits; what it is
    itself a link to, if no other repository has a link to that.
    Raises OSError, also if one of them is Ollama's or is being downloaded now.
    """
    files: dict[Path, int] = {}
    revisions = 1
    for model in models:
        if model.source is Source.OLLAMA:
            said = (
                "it is in Ollama's store, which is only read here; "
                f"`ollama rm {model.name}` removes it"
            )
            raise PermissionError(errno.EPERM, said, model.name)
        if model.kind is ModelKind.UNFINISHED and RepoCache.of(model.path).is_downloading(
            model.path
        ):
            raise OSError(errno.EBUSY, "it is being downloaded; cancel that first", model.name)
        for file in model.files:
            found = [file]
            if model.source is Source.HUGGING_FACE and file.is_symlink():
                cache = RepoCache.of(file)
                if (blob := cache.blob_of(file)) is not None:
                    found = [*cache.links_to(blob), blob]
                    revisions = max(revisions, len(found) - 1)
            files |= {path: _freed(path) for path in (next(hops(one)) for one in found)}
    for store in {RepoCache.of(model.path).cache_dir for model in _in_cache(models)}:
        files |= _orphaned(store, files)
    return Removal(tuple(models), files, revisions)


def _in_cache(models: Iterable[LocalModel]) -> Iterator[LocalModel]:
    return (model for model in models if model.source is Source.HUGGING_FACE)


def _freed(file: Path) -> int:
    """The bytes that deleting a file frees: none for a link, or if it has another name."""
    try:
        stat = file.lstat()
    except OSError:
        return 0
    return stat.st_size if S_ISREG(stat.st_mode) and stat.st_nlink == 1 else 0


def _shared(cache_dir: Path) -> Path:
    """The folder of the blobs that several repositories of a cache may have links to."""
    return Path(os.path.realpath(cache_dir)) / "blobs"


def _orphaned(cache_dir: Path, deleted: Mapping[Path, int]) -> dict[Path, int]:
    """The shared blobs to which no link is left once these files are deleted."""
    gone, kept = set[Path](), set[Path]()
    for link in cache_dir.glob("*--*/blobs/*"):
        place, *_, blob = (next(hops(link)), *hops(link))
        if blob.is_relative_to(_shared(cache_dir)):
            (gone if place in deleted else kept).add(blob)
    return {blob: _freed(blob) for blob in gone - kept}


def remove(removal: Removal) -> int:
    """Delete the files, and commits of the cache that are empty then; the bytes that were freed.

    Raises OSError.
    """
    caches = {RepoCache.of(model.path) for model in _in_cache(removal.models)}
    stores = {_shared(cache.cache_dir) for cache in caches}
    files = [file for file in removal.files if stores.isdisjoint(file.parents)]
    links = frozenset(
        file
        for file in files
        if file.is_symlink() and any(cache.blob_of(file) == file for cache in caches)
    )
    for file in files:
        if file not in links:
            file.unlink(missing_ok=True)
    for store in stores:
        # Other programs may be making links to the same shared blobs: huggingface_hub has the lock.
        DeleteCacheStrategy(
            expected_freed_size=0,
            blobs=links,
            refs=frozenset(),
            repos=frozenset(),
            snapshots=frozenset(),
            cache_dir=store.parent,
        ).execute()
    for cache in caches:
        _delete_empty_commits(cache)
    return sum(size for file, size in removal.files.items() if not os.path.lexists(file))


def _delete_empty_commits(cache: RepoCache) -> None:
    """Delete the commits of a repository that have no files left, and its folder with the last
    file; nothing while a program downloads into it."""
    snapshots, blobs = cache.folder / "snapshots", cache.folder / "blobs"
    if cache.has_downloads or not snapshots.is_dir():
        return
    for folder in sorted(snapshots.rglob("*"), reverse=True):
        with suppress(OSError):  # it is not empty
            folder.rmdir()
    left = {commit.name for commit in snapshots.iterdir()}
    if not left and not (blobs.is_dir() and any(blobs.iterdir())):
        shutil.rmtree(cache.folder)
        return
    for reference in (cache.folder / "refs").rglob("*"):
        if reference.is_file() and reference.read_text() not in left:
            reference.unlink()

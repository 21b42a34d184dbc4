"""Places in the Hugging Face cache, in huggingface_hub's layout, so other tools share the files.

models--user--repo/ holds blobs/<etag> (the bytes), snapshots/<commit>/<file> (links to them) and
refs/<revision> (a commit). Ours beside them: blobs/<etag>.part, a download under way,
blobs/<etag>.part.map, which of its bytes are there, and blobs/<etag>.part.json, of what it is.
Source: huggingface.co/docs/huggingface_hub, "Manage cache".
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec
from filelock import Timeout
from huggingface_hub import constants
from huggingface_hub.utils import WeakFileLock

from eaglechat.hub.catalogue.names import is_revision, is_safe_path
from eaglechat.hub.errors import NotFoundError
from eaglechat.hub.local.parts import PART, arrived, map_of
from eaglechat.paths import write_atomically

_COMMIT = re.compile(r"[0-9a-f]{40}")
RECORD = ".part.json"
_LOCK_TRY_S = 0.05


@dataclass(frozen=True)
class Unfinished:
    """A download that was interrupted, by its record beside it."""

    repo: str
    path: str
    revision: str
    part: Path
    bytes_done: int
    bytes_total: int


class _Record(msgspec.Struct, frozen=True):
    """What is written beside a download under way."""

    path: str
    revision: str
    size: int


@dataclass(frozen=True)
class RepoCache:
    """One repository's folder in the cache."""

    cache_dir: Path
    repo: str

    @property
    def folder(self) -> Path:
        return self.cache_dir / f"models--{self.repo.replace('/', '--')}"

    def blob(self, etag: str) -> Path:
        return self.folder / "blobs" / etag

    def part(self, etag: str) -> Path:
        return self.folder / "blobs" / (etag + PART)

    def record(self, etag: str) -> Path:
        return self.folder / "blobs" / (etag + RECORD)

    def lock(self, etag: str) -> Path:
        """The lock huggingface_hub takes for the same blob."""
        return self.cache_dir / ".locks" / self.folder.name / f"{etag}.lock"

    def is_arriving(self, part: Path) -> bool:
        """Whether a program is downloading this file now."""
        lock = self.lock(part.name.removesuffix(PART))
        if not lock.exists():
            return False
        try:
            with WeakFileLock(lock, timeout=_LOCK_TRY_S):
                return False
        except Timeout:
            return True
        except OSError:
            return False

    def pointer(self, commit: str, path: str) -> Path:
        """Where a file of a commit is. Raises NotFoundError for a name no folder can keep."""
        if not is_safe_path(path):
            raise NotFoundError(
                f"{self.repo} names a file {path!r}, which leads out of its folder or means a "
                "device on Windows: it is not fetched."
            )
        return self.folder.joinpath("snapshots", commit, *PurePosixPath(path).parts)

    def reference(self, revision: str) -> Path:
        """Where the commit of a branch or a tag is noted. Raises NotFoundError for no revision."""
        if not is_revision(revision):
            raise NotFoundError(f"{revision!r} is not the name of a revision of {self.repo}.")
        return self.folder.joinpath("refs", *PurePosixPath(revision).parts)

    def find(self, path: str, revision: str = "main") -> Path | None:
        """The file as the cache holds it at a revision."""
        for snapshot in self.snapshots(revision):
            pointer = self.pointer(snapshot.name, path)
            if pointer.exists():
                return pointer
        return None

    def snapshots(self, revision: str = "main") -> list[Path]:
        """Folders of the commits a revision means: of a branch all that were fetched, newest first.

        A branch moves on; what was fetched of it before is still what the user asked for.
        """
        commit = self._commit(revision)
        if commit == revision:
            folders = [self.folder / "snapshots" / commit]
            return [folder for folder in folders if folder.is_dir()]
        folders = [path for path in self.folder.glob("snapshots/*") if path.is_dir()]
        return sorted(folders, key=lambda p: (p.name == commit, p.stat().st_mtime), reverse=True)

    def files_of(self, etag: str) -> list[Path]:
        """The files of all commits that are this blob."""
        blob = self.blob(etag)
        if not blob.exists():
            return []
        files = self.folder.glob("snapshots/*/**/*")
        return [path for path in files if path.is_symlink() and path.samefile(blob)]

    def _commit(self, revision: str) -> str | None:
        if _COMMIT.fullmatch(revision):
            return revision
        try:
            return self.reference(revision).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None

    def link(self, etag: str, commit: str, path: str, revision: str) -> Path:
        """Make a finished blob a file of a commit, and the commit what the revision means."""
        blob, pointer = self.blob(etag), self.pointer(commit, path)
        pointer.parent.mkdir(parents=True, exist_ok=True)
        if revision != commit and self._commit(revision) != commit:
            # Written in place as huggingface_hub does: a second file here would be a second branch.
            reference = self.reference(revision)
            reference.parent.mkdir(parents=True, exist_ok=True)
            reference.write_text(commit)
        if not pointer.exists():
            _link_or_move(blob, pointer)
        return pointer

    def unfinished(self) -> Iterator[Unfinished]:
        """Interrupted downloads whose record can be read."""
        for part in self.folder.glob(f"blobs/*{PART}"):
            try:
                record = msgspec.json.decode(
                    part.with_name(part.name + ".json").read_bytes(), type=_Record
                )
                done = arrived(part, record.size)
            except (OSError, msgspec.DecodeError):
                continue
            yield Unfinished(self.repo, record.path, record.revision, part, done, record.size)

    def forget(self, etag: str) -> None:
        """Remove what is here of a download under way."""
        for file in (self.part(etag), map_of(self.part(etag)), self.record(etag)):
            file.unlink(missing_ok=True)

    def write_record(self, etag: str, path: str, revision: str, size: int) -> None:
        write_atomically(self.record(etag), msgspec.json.encode(_Record(path, revision, size)))


def _link_or_move(blob: Path, pointer: Path) -> None:
    try:
        if constants.HF_HUB_DISABLE_SYMLINKS:
            raise OSError("symbolic links are switched off")
        pointer.unlink(missing_ok=True)
        pointer.symlink_to(os.path.relpath(blob, pointer.parent))
    except OSError:
        # No links here (Windows without developer mode): huggingface_hub too moves the file then.
        blob.replace(pointer)


def repo_of(folder: Path) -> str:
    """`user/repo` for a folder models--user--repo."""
    return folder.name[len("models--") :].replace("--", "/")


def free_bytes(folder: Path) -> int:
    """Free space where a folder is or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free

"""Files in the Hugging Face cache, in huggingface_hub's layout, so that other tools share them.

models--user--repo/ holds blobs/<etag> (the bytes, or a link to blobs/ of the whole cache, the store
that huggingface_hub shares between repositories), snapshots/<commit>/<file> (links to blobs) and
refs/<revision> (a commit). eaglechat adds two files during a download: blobs/<etag>.part (the first
bytes of the blob) and .part.json (which file of which revision it is).
huggingface_hub writes links and refs in private functions only, so they are written here.
Source: huggingface.co/docs/huggingface_hub, "Manage cache".
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec
from filelock import Timeout
from huggingface_hub import constants
from huggingface_hub.utils import WeakFileLock

from eaglechat.hub.errors import HubError
from eaglechat.hub.references import is_revision, is_safe_path
from eaglechat.paths import write_atomically

_COMMIT = re.compile(r"[0-9a-f]{40}")
PARTIAL = ".part"
_LOCK_TRY_S = 0.05


class Unfinished(msgspec.Struct, frozen=True):
    """Which file an interrupted download is of: the .part.json beside its partial file."""

    path: str
    revision: str
    size: int


@dataclass(frozen=True)
class RepoCache:
    """One repository's folder in the cache."""

    cache_dir: Path
    repo: str

    @classmethod
    def of(cls, file: Path) -> RepoCache:
        """The repository in whose folder a file of the cache is."""
        folder = next(up for up in file.parents if up.name.startswith("models--"))
        return cls(folder.parent, repo_of(folder))

    @property
    def folder(self) -> Path:
        return self.cache_dir / f"models--{self.repo.replace('/', '--')}"

    def blob(self, etag: str) -> Path:
        return self.folder / "blobs" / etag

    def partial(self, etag: str) -> Path:
        """The partial file of a blob."""
        return self.folder / "blobs" / (etag + PARTIAL)

    def received(self, etag: str) -> int:
        """How many bytes of a blob its partial file has. Raises OSError."""
        partial = self.partial(etag)
        return partial.stat().st_size if partial.exists() else 0

    def lock(self, etag: str) -> Path:
        """The lock file that huggingface_hub uses for the same blob."""
        return self.cache_dir / ".locks" / self.folder.name / f"{etag}.lock"

    def is_downloading(self, partial: Path) -> bool:
        """Whether a program is writing this partial file now."""
        return _is_held(self.lock(partial.name.removesuffix(PARTIAL)))

    @property
    def has_downloads(self) -> bool:
        """Whether a download into this repository has not ended, of any program."""
        begun = (self.folder.glob(f"blobs/*{ending}") for ending in (PARTIAL, ".incomplete"))
        locks = (self.cache_dir / ".locks" / self.folder.name).glob("*.lock")
        return any(map(any, begun)) or any(map(_is_held, locks))

    def pointer(self, commit: str, path: str) -> Path:
        """Where a file of a commit is. Raises HubError for an unsafe name."""
        if not is_safe_path(path):
            raise HubError(
                f"{self.repo} names a file {path!r}, which leads out of its folder or means a "
                "device on Windows: it is not fetched."
            )
        return self.folder.joinpath("snapshots", commit, *PurePosixPath(path).parts)

    def reference(self, revision: str) -> Path:
        """The file with the commit of a branch or tag. Raises HubError for an unsafe name."""
        if not is_revision(revision):
            raise HubError(f"{revision!r} is not the name of a revision of {self.repo}.")
        return self.folder.joinpath("refs", *PurePosixPath(revision).parts)

    def blob_of(self, file: Path) -> Path | None:
        """The blob of this repository that a file is or is a link to, itself perhaps a link to the
        store of the whole cache. None for what leads elsewhere: that is another program's."""
        blobs = Path(os.path.realpath(self.folder / "blobs"))
        return next((hop for hop in hops(file) if hop.parent == blobs), None)

    def links_to(self, blob: Path) -> list[Path]:
        """The files, in any commit, that are links to this blob."""
        files = (self.folder / "snapshots").rglob("*")
        place = next(hops(blob))
        return [path for path in files if path.is_symlink() and place in hops(path)]

    def delete(self, file: Path) -> None:
        """Delete a file with the blob that it is a link to, but not what is outside of the cache:
        that is another program's."""
        (self.blob_of(file) or file).unlink()

    def commit(self, revision: str) -> str | None:
        """Of a branch, as the last download found it; None if that is not known."""
        if _COMMIT.fullmatch(revision):
            return revision
        try:
            return self.reference(revision).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None

    def link(self, etag: str, commit: str, path: str, revision: str) -> Path:
        """Link a complete blob as a file of a commit, and note the commit of the revision."""
        blob, pointer = self.blob(etag), self.pointer(commit, path)
        pointer.parent.mkdir(parents=True, exist_ok=True)
        if revision != commit and self.commit(revision) != commit:
            # Not written atomically: a temporary file in refs/ would be read as another branch.
            reference = self.reference(revision)
            reference.parent.mkdir(parents=True, exist_ok=True)
            reference.write_text(commit)
        if pointer.exists():
            return pointer
        try:
            if constants.HF_HUB_DISABLE_SYMLINKS:
                raise OSError("symbolic links are switched off")
            pointer.unlink(missing_ok=True)
            pointer.symlink_to(os.path.relpath(blob, pointer.parent))
        except OSError:
            # No symbolic links here (Windows without developer mode): huggingface_hub moves it too.
            blob.replace(pointer)
        return pointer

    def unfinished(self) -> dict[Path, Unfinished]:
        """Interrupted downloads whose record can be read, by their partial files."""
        found = {}
        for partial in self.folder.glob(f"blobs/*{PARTIAL}"):
            with suppress(OSError, msgspec.DecodeError):
                record = record_of(partial).read_bytes()
                found[partial] = msgspec.json.decode(record, type=Unfinished)
        return found

    def write_record(self, etag: str, path: str, revision: str, size: int) -> None:
        """Note which file a partial file belongs to."""
        record = msgspec.json.encode(Unfinished(path, revision, size))
        write_atomically(record_of(self.partial(etag)), record)

    def discard_partial(self, etag: str) -> None:
        """Delete the files of a download that are not the blob."""
        for file in (self.partial(etag), record_of(self.partial(etag))):
            file.unlink(missing_ok=True)


def hops(file: Path) -> Iterator[Path]:
    """Where a file is and, if it is a link, what it leads to, one link at a time. Folders are
    resolved, so that a file has one path."""
    seen = set[Path]()
    while (place := Path(os.path.realpath(file.parent), file.name)) not in seen:
        yield place
        seen.add(place)
        try:
            file = place.parent / place.readlink()
        except OSError:
            return


def _is_held(lock: Path) -> bool:
    if not lock.exists():
        return False
    try:
        with WeakFileLock(lock, timeout=_LOCK_TRY_S):
            return False
    except Timeout:
        return True
    except OSError:
        return False


def record_of(partial: Path) -> Path:
    return partial.with_name(partial.name + ".json")


def cache_dir() -> Path:
    """The Hugging Face cache: HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub."""
    return Path(constants.HF_HUB_CACHE).expanduser()


def repo_of(folder: Path) -> str:
    """`user/repo` for a folder models--user--repo."""
    return folder.name[len("models--") :].replace("--", "/")


def free_bytes(folder: Path) -> int:
    """Free disk space for a folder, which need not exist yet."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free

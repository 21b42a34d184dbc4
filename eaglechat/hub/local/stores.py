"""Where models are kept, and which files of a repository on the Hub are there.

LM Studio has PUBLISHER/REPOSITORY/FILE in its folder, llama.cpp PUBLISHER_REPOSITORY_FILE in its
own (before it used the Hugging Face cache), and Ollama blobs named by their SHA-256.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from itertools import chain
from pathlib import Path

from eaglechat.gguf.shards import shard_of
from eaglechat.hub.local import ollama
from eaglechat.hub.local.cache import RepoCache
from eaglechat.hub.references import HubReference, InvalidReferenceError, choose

NO_HASHES: Mapping[str, str] = {}


class Source(str, Enum):
    """Where a model was found."""

    HUGGING_FACE = "Hugging Face cache"
    OLLAMA = "Ollama"
    LM_STUDIO = "LM Studio"
    LLAMA_CPP = "llama.cpp"
    CONVERTED = "converted here"
    FOLDER = "folder"


def lm_studio_folders() -> list[Path]:
    home = Path.home()
    folders = [home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]
    try:
        settings = json.loads((home / ".lmstudio" / "settings.json").read_text(encoding="utf-8"))
        folders.insert(0, Path(settings["downloadsFolder"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return folders


def llama_cpp_folder() -> Path:
    """llama.cpp's folder for downloads; newer releases use the Hugging Face cache."""
    own = os.environ.get("LLAMA_CACHE")
    if own:
        return Path(own)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "llama.cpp"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llama.cpp"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "llama.cpp"


def find_model(
    reference: HubReference,
    cache: Path,
    hashes: Mapping[str, str] = NO_HASHES,
    *,
    is_target: bool = False,
) -> Path | None:
    """The path of a model's first file: in the newest commit of which the Hugging Face cache has
    all its files, else where another program has it. `hashes` are the known SHA-256 of the
    repository's files, by their path in it: a file that has one, in any commit of the cache or in
    Ollama's store, will do."""
    repo = RepoCache(cache, reference.repo)
    for names in chain(
        _in_cache(repo, reference.revision),
        [_by_hash(hashes, repo)],
        _in_other_folders(reference.repo),
    ):
        with suppress(InvalidReferenceError):
            return names[choose(reference, list(names), is_target=is_target).first]
    return None


def checkpoint_in(folder: Path) -> tuple[Path, ...]:
    """The files of a checkpoint of which the folder has the weights, config.json first; empty
    without one."""
    config = folder / "config.json"
    weights = [path for ending in (".safetensors", ".bin") for path in folder.glob(f"*{ending}")]
    if not weights or not config.exists():
        return ()
    return (config, *sorted(weights), *sorted(folder.glob("*.index.json")))


def find_file(repo: str, path: str, size: int, sha256: str | None) -> Path | None:
    """A file of a repository that another program has, of this size. A shard of a split
    model is found only beside the others."""
    reference = HubReference(repo, file=path)
    hashes = {path: sha256} if sha256 is not None and shard_of(path) is None else NO_HASHES
    for names in (_by_hash(hashes), *_in_other_folders(repo)):
        with suppress(InvalidReferenceError, OSError):
            is_whole = path in choose(reference, list(names)).files
            if is_whole and names[path].stat().st_size == size:
                return names[path]
    return None


def _in_cache(repo: RepoCache, revision: str) -> Iterator[dict[str, Path]]:
    """The GGUF files of each commit of a revision, the newest first, by their path in it."""
    for snapshot in repo.snapshots(revision):
        files = _ggufs(snapshot, "**/*.gguf")
        yield {path.relative_to(snapshot).as_posix(): path for path in files}


def _by_hash(hashes: Mapping[str, str], repo: RepoCache | None = None) -> dict[str, Path]:
    """The files with these hashes in a repository's folder of the cache, else in Ollama's store."""
    found = {}
    for path, sha256 in hashes.items():
        links = repo.links_to(repo.blob(sha256)) if repo is not None else []
        whole = (link for link in links if link.exists() and shard_of(link.name) is None)
        found[path] = next(whole, None) or ollama.blob_with(sha256)
    return {path: file for path, file in found.items() if file is not None}


def _in_other_folders(repo: str) -> Iterator[dict[str, Path]]:
    """The GGUF files of a repository in each other program's folder, by their path in it."""
    for folder in lm_studio_folders():
        own = folder.joinpath(*repo.split("/"))
        names = {path.relative_to(own).as_posix(): path for path in _ggufs(own, "**/*.gguf")}
        if names:
            yield names
    before = repo.replace("/", "_") + "_"
    flat = _ggufs(llama_cpp_folder(), f"{before}*.gguf")
    if flat:
        yield {path.name.removeprefix(before): path for path in flat}


def _ggufs(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(path for path in folder.glob(pattern) if path.is_file())
    except OSError:
        return []


def name_in_llama_cpp(file: str, repos: Sequence[str]) -> tuple[str, str | None]:
    """The name of a file in llama.cpp's folder and its repository, of those that it has manifests
    of; its name as it is if it is of none."""
    for repo in repos:
        before = repo.replace("/", "_") + "_"
        if file.startswith(before):
            return f"{repo}/{file.removeprefix(before)}", repo
    return file.removesuffix(".gguf"), None


def repos_in_llama_cpp(folder: Path) -> list[str]:
    """Repositories by the manifests in llama.cpp's folder, `manifest=OWNER=REPOSITORY=TAG.json`;
    long names first, because one may begin with another."""
    names = (path.name.split("=") for path in folder.glob("manifest=*=*=*.json"))
    return sorted({f"{parts[1]}/{parts[2]}" for parts in names}, key=len, reverse=True)

"""Which models on this machine the Hub has another version of, and its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eaglechat.hub.downloads.client import Hub, RemoteFile, RemoteRepo
from eaglechat.hub.errors import HubError, OfflineError
from eaglechat.hub.local.cache import RepoCache
from eaglechat.hub.local.model import LocalModel, Source


def newer(hub: Hub, models: Sequence[LocalModel]) -> set[str]:
    """The names of cached GGUFs that differ from the Hub's main branch. A file that is no longer
    there, or cannot be asked about, counts as unchanged.

    Raises OfflineError.
    """
    asked: dict[str, RemoteRepo] = {}
    others: dict[str, list[bool]] = {}
    for model in models:
        if model.source is not Source.HUGGING_FACE or model.repo is None or model.header is None:
            continue
        if model.repo not in asked:
            # Without files it has no other version of any.
            asked[model.repo] = RemoteRepo(model.repo)
            try:
                asked[model.repo] = hub.repo(model.repo)
            except OfflineError:
                raise
            except HubError:
                pass
        files = zip(model.in_repo, model.files, strict=True)
        is_other = any(_is_other(asked[model.repo], path, file) for path, file in files)
        others.setdefault(model.name, []).append(is_other)
    return {name for name, versions in others.items() if all(versions)}


def files(hub: Hub, model: LocalModel) -> list[RemoteFile]:
    """The files of a model as the Hub has them now. Raises HubError."""
    assert model.repo is not None
    repo = hub.repo(model.repo)
    return [repo.file(path) for path in model.in_repo]


def _is_other(repo: RemoteRepo, path: str, file: Path) -> bool:
    if path not in repo.paths:
        return False
    remote = repo.file(path)
    blob = RepoCache.of(file).blob_of(file)
    if blob is not None and remote.sha256 is not None:
        return blob.name != remote.sha256
    return file.stat().st_size != remote.size

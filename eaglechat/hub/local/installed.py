"""What of each catalogue pair is on this machine, without asking the Hub; and which installations
were begun."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from eaglechat import paths
from eaglechat.gguf.shards import shard_of, shard_paths
from eaglechat.hub.catalogue import CatalogueEntry, ModelSource
from eaglechat.hub.local.cache import RepoCache, Unfinished, cache_dir
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.stores import checkpoint_in, find_model

DEFAULT_DRAFT_TYPE = "q8_0"
"""Half the size of f16; drafts with fewer bits have a lower acceptance (llama.cpp issue 15039)."""


@dataclass(frozen=True)
class Status:
    """What of a pair is on this machine; `pair` is set if it can be loaded."""

    state: Literal["installed", "partly", "available"]
    pair: Pair | None
    target: Path | None
    draft: Path | None
    checkpoint: Path | None
    bytes_here: int = 0
    """Bytes downloaded so far, unfinished files included."""
    begun: tuple[Path, ...] = ()
    """The partial files of its downloads that have not ended."""


def status(entry: CatalogueEntry, cache: Path | None = None) -> Status:
    folder = cache or cache_dir()
    target = _find(folder, entry.target, is_target=True)
    draft = checkpoint = None
    if entry.draft.repo:
        draft = _find(folder, entry.draft)
    elif entry.draft.checkpoint:
        draft = _converted(entry)
        commits = RepoCache(folder, entry.draft.checkpoint).snapshots(entry.draft.revision)
        checkpoint = next(filter(checkpoint_in, commits), None)
    begun = list(_unfinished(folder, entry))
    partial = tuple(left.partial for left in begun)
    if target and (draft or not entry.draft):
        pair = Pair(entry.name, target, draft, "catalogue", note=entry.note)
        return Status("installed", pair, target, draft, checkpoint, begun=partial)
    downloaded = checkpoint or (draft if entry.draft.repo else None)
    here = _bytes_of(None if entry.target.path else target) + _bytes_of(downloaded)
    here += sum(left.bytes_done for left in begun)
    is_partly = bool((target and not entry.target.path) or downloaded or draft or begun)
    return Status(
        "partly" if is_partly else "available", None, target, draft, checkpoint, here, partial
    )


def _unfinished(cache: Path, entry: CatalogueEntry) -> Iterator[Unfinished]:
    """Interrupted downloads of a pair's files."""
    for source in (one for one in (entry.target, entry.draft) if one.repo):
        shard = shard_of(source.file or "")
        stem = shard.stem if shard else source.file or ""
        for left in RepoCache(cache, source.repo).unfinished():
            if (
                left.path.startswith(stem)
                and (source.quantization or "").upper() in left.path.upper()
            ):
                yield left
    if entry.draft.checkpoint:
        yield from RepoCache(cache, entry.draft.checkpoint).unfinished()


def _bytes_of(model: Path | None) -> int:
    """The size of a GGUF with all its shards, or of a checkpoint's folder."""
    if model is None:
        return 0
    files = model.iterdir() if model.is_dir() else shard_paths(model)
    return sum(file.stat().st_size for file in files if file.is_file())


def _find(cache: Path, source: ModelSource, *, is_target: bool = False) -> Path | None:
    """A source's first file, on this machine."""
    if source.path:
        return source.local if source.local.is_file() else None
    hashes = _known_hashes().get(_hash_key(source.repo, source.revision), {})
    if source.sha256 is not None and source.file is not None:
        hashes = {source.file: source.sha256}
    return find_model(source.reference, cache, hashes, is_target=is_target)


def converted_checkpoints(pairs: Iterable[tuple[CatalogueEntry, Status]]) -> set[Path]:
    """The checkpoints whose draft is converted: nothing needs them until it is converted again."""
    return {
        status.checkpoint
        for entry, status in pairs
        if entry.draft.checkpoint and status.checkpoint and status.draft
    }


def converted_path(name: str, draft_type: str) -> Path:
    """Where the draft that is converted for a pair is written."""
    return paths.drafts_dir() / f"eagle3-{name}-{draft_type.upper()}.gguf"


def _converted(entry: CatalogueEntry) -> Path | None:
    """The draft converted for a pair; of several types, the one requested last."""
    stem = converted_path(entry.name, "").stem
    # Another pair's name may begin with this one's; what follows here is a type, without hyphens.
    found = (p for p in paths.drafts_dir().glob(f"{stem}*.gguf") if "-" not in p.stem[len(stem) :])
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def note_hash(repo: str, revision: str, path: str, sha256: str | None) -> None:
    """Remember the hash of a file of the Hub that is here under another name, as Ollama's blobs
    are: by this hash it is found again."""
    key, shard = _hash_key(repo, revision), shard_of(path)
    with paths.changing(_hashes_file()):
        known = _known_hashes()
        if sha256 is None or shard is not None or known.get(key, {}).get(path) == sha256:
            return
        hashes = {**known, key: {**known.get(key, {}), path: sha256}}
        with suppress(OSError):
            paths.write_atomically(_hashes_file(), msgspec.json.encode(hashes))


def _known_hashes() -> dict[str, dict[str, str]]:
    """By repository and revision, the hash of each file."""
    try:
        return msgspec.json.decode(_hashes_file().read_bytes(), type=dict[str, dict[str, str]])
    except (OSError, msgspec.DecodeError):
        return {}


def _hash_key(repo: str, revision: str) -> str:
    return f"{repo} {revision}"


def _hashes_file() -> Path:
    return paths.state_dir() / "hub-hashes.json"


def begun_pairs() -> list[str]:
    """Names of the pairs whose installation was begun and has not ended, the oldest first."""
    try:
        return msgspec.json.decode(_begun_file().read_bytes(), type=list[str])
    except (OSError, msgspec.DecodeError):
        return []


def note_begun(name: str) -> None:
    """Remember that a pair is being installed: a later session offers to resume it."""
    _change_begun(name, [name])


def note_ended(name: str) -> None:
    """Forget a pair whose installation is complete or was cancelled."""
    if name in begun_pairs():
        _change_begun(name, [])


def _change_begun(name: str, instead: list[str]) -> None:
    # If it cannot be written, the downloaded files stay; only the offer to resume is lost.
    with suppress(OSError), paths.changing(_begun_file()):
        names = [known for known in begun_pairs() if known != name]
        paths.write_atomically(_begun_file(), msgspec.json.encode([*names, *instead]))


def _begun_file() -> Path:
    return paths.state_dir() / "downloads.json"

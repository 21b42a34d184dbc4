"""What of each catalogue pair is on this machine, without asking the Hub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from eaglechat import paths
from eaglechat.gguf.shards import shard_of
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.local.library import by_commit, files_here, locate
from eaglechat.hub.local.model import LocalModel, ModelKind
from eaglechat.hub.local.pairs import CataloguePair, Pair
from eaglechat.hub.references import ModelSource
from eaglechat.state_file import StateFile

DRAFT_TYPE = "q8_0"
"""Of a draft that is converted: half the size of f16; with fewer bits its acceptance is lower
(llama.cpp issue 15039)."""

_Hashes = dict[str, dict[str, str]]
_HASHES = StateFile("hub-hashes.json", _Hashes)
"""By repository and revision, the hash of each file."""


def status(entry: CatalogueEntry, cache: Path | None = None) -> CataloguePair:
    return statuses([entry], files_here(cache=cache))[0]


def statuses(entries: Iterable[CatalogueEntry], here: Sequence[LocalModel]) -> list[CataloguePair]:
    """What of each pair is among the models `here` and their duplicates."""
    hashes, copies = _HASHES.read({}), [one for model in here for one in model.everywhere]
    return [_status(entry, copies, hashes) for entry in entries]


def _status(entry: CatalogueEntry, here: Sequence[LocalModel], known: _Hashes) -> CataloguePair:
    def of_hub(source: ModelSource, *, is_target: bool = False) -> LocalModel | None:
        hashes = known.get(_hash_key(source.repo, source.revision), {})
        if source.sha256 is not None and source.file is not None:
            hashes = {source.file: source.sha256}
        return locate(here, source, hashes, is_target=is_target) if source.repo else None

    found, own = of_hub(entry.target, is_target=True), entry.target.path and entry.target.local
    target = found.path if found else own if own and own.is_file() else None
    downloaded = of_hub(entry.draft)
    draft, checkpoint = downloaded.path if downloaded else None, None
    if entry.draft.checkpoint:
        draft = converted if (converted := converted_path(entry.name)).exists() else None
        weights = [one for one in here if one.kind is ModelKind.CHECKPOINT]
        its = [one for one in weights if one.repo == entry.draft.checkpoint]
        if commits := by_commit(its, entry.draft.revision):
            (downloaded,) = commits[0]
            checkpoint = downloaded.path
    begun = list(_unfinished(entry, here))
    parts = [one for one in (found, downloaded, *begun) if one is not None]
    state, pair = "partly" if parts or draft else "available", None
    if target and (draft or not entry.draft):
        state, pair = "installed", Pair(entry.name, target, draft, "catalogue", note=entry.note)
    return CataloguePair(
        entry.name,
        state,
        pair,
        bytes_here=sum(one.size_bytes for one in parts),
        entry=entry,
        target=target,
        draft=draft,
        checkpoint=checkpoint,
        begun=tuple(one.path for one in begun),
    )


def _unfinished(entry: CatalogueEntry, here: Iterable[LocalModel]) -> Iterator[LocalModel]:
    """Interrupted downloads of a pair's files."""
    for left in (one for one in here if one.kind is ModelKind.UNFINISHED):
        (path,) = left.in_repo
        for source in (entry.target, entry.draft):
            shard = shard_of(source.file or "")
            is_its = path.startswith(shard.stem if shard else source.file or "")
            if left.repo == source.of_hub and (
                source.checkpoint
                or (is_its and (source.quantization or "").upper() in path.upper())
            ):
                yield left
                break


def converted_checkpoints(pairs: Iterable[CataloguePair]) -> set[Path]:
    """The checkpoints whose draft is converted: nothing needs them until it is converted again."""
    return {pair.checkpoint for pair in pairs if pair.checkpoint and pair.draft}


def converted_path(name: str) -> Path:
    """Where the draft that is converted for a pair is written."""
    return paths.drafts_dir() / f"eagle3-{name}-{DRAFT_TYPE.upper()}.gguf"


def note_hash(repo: str, revision: str, path: str, sha256: str | None) -> None:
    """Remember the hash of a file of the Hub that is here under another name, as Ollama's blobs
    are: by this hash it is found again."""
    if sha256 is not None and shard_of(path) is None:
        with _HASHES.changing({}) as known:
            known.setdefault(_hash_key(repo, revision), {})[path] = sha256


def _hash_key(repo: str, revision: str) -> str:
    return f"{repo} {revision}"

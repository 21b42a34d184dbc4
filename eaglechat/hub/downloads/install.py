"""Brings a pair of the catalogue onto this machine: asks what it takes, downloads, converts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from eaglechat.gguf.memory import MemoryNeed, memory_need
from eaglechat.hub.catalogue.entries import Entry, GGUFSource
from eaglechat.hub.catalogue.references import InvalidReferenceError, choose
from eaglechat.hub.downloads.client import Hub, RemoteFile, RemoteRepo
from eaglechat.hub.downloads.download import FileRequest
from eaglechat.hub.downloads.drafts import checkpoint_files, judge_gguf
from eaglechat.hub.downloads.queue import Queue
from eaglechat.hub.errors import HubError, disk_full
from eaglechat.hub.local import journal
from eaglechat.hub.local.cache import RepoCache, free_bytes
from eaglechat.hub.local.installed import DEFAULT_DRAFT_TYPE, converted_path, status
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.parts import arrived

USUAL_CONTEXT = 1 << 13
"""Tokens of context that the memory of a pair is said for before it is here."""


@dataclass(frozen=True)
class Plan:
    """What installing a pair takes, as the Hub answered: exact files, sizes and hashes."""

    entry: Entry
    target: tuple[RemoteFile, ...]
    draft: tuple[RemoteFile, ...]
    gated: tuple[str, ...]
    """Repositories whose licence has to be accepted on their page first."""
    licences: tuple[tuple[str, str], ...]
    """Each repository with the licence its card states."""
    bytes_total: int
    bytes_missing: int

    @property
    def converts(self) -> bool:
        return self.entry.draft.checkpoint is not None

    @property
    def files(self) -> tuple[RemoteFile, ...]:
        return (*self.target, *self.draft)


def plan(hub: Hub, entry: Entry) -> Plan:
    """Ask the Hub for a pair's files. Raises HubError, InvalidReferenceError."""
    target_repo = hub.repo(entry.target.repo, entry.target.revision)
    target = _model(target_repo, entry.target)
    gguf = entry.draft.gguf
    if gguf is not None:
        draft_repo = hub.repo(gguf.repo, gguf.revision)
        draft = _model(draft_repo, gguf)
    else:
        draft_repo = hub.repo(entry.draft.checkpoint or "", entry.draft.revision)
        draft = _checkpoint(draft_repo)
    repos = {repo.repo: repo for repo in (target_repo, draft_repo)}.values()
    files = (*target, *draft)
    return Plan(
        entry=entry,
        target=target,
        draft=draft,
        gated=tuple(repo.repo for repo in repos if repo.gated),
        licences=tuple((repo.repo, repo.licence) for repo in repos if repo.licence),
        bytes_total=sum(file.size for file in files),
        bytes_missing=sum(_missing(hub.cache_dir, file) for file in files),
    )


def check_draft(hub: Hub, plan: Plan) -> None:
    """Refuse before its download a checkpoint that would not convert after it.

    A gated one is judged when it is here. Raises HubError, GGUFError.
    """
    if not plan.converts or plan.gated or not plan.bytes_missing:
        return
    problem = why_unfit(hub, plan)
    if problem:
        name = plan.entry.name
        raise HubError(
            f"The draft of {name} cannot be converted: {problem}. Nothing was downloaded."
        )


def check_access(hub: Hub, plan: Plan) -> None:
    """Refuse before anything is downloaded a gated repository that this user may not read: the
    draft of a target that cannot be had is of no use. Raises HubError."""
    asked = set[str]()
    for file in plan.files:
        if file.repo in plan.gated and file.repo not in asked and _missing(hub.cache_dir, file):
            asked.add(file.repo)
            hub.metadata(file.repo, file.path, file.commit)


def why_unfit(hub: Hub, plan: Plan) -> str | None:
    """Why a plan's draft does not fit its target, by their headers; None if it does.

    Raises HubError, GGUFError.
    """
    target = hub.peek(plan.target[0])
    if not plan.converts:
        return judge_gguf(hub.peek(plan.draft[0]), target)
    from eaglechat.hub.downloads.checkpoints import judge_checkpoint  # noqa: PLC0415 - numpy, gguf

    return judge_checkpoint(hub, plan.draft, target).problem


def _model(repo: RemoteRepo, source: GGUFSource) -> tuple[RemoteFile, ...]:
    return tuple(repo.file(name) for name in choose(source.reference, repo.paths).files)


def _checkpoint(repo: RemoteRepo) -> tuple[RemoteFile, ...]:
    names = checkpoint_files(repo)
    if not names:
        raise InvalidReferenceError(f"{repo.repo} holds no checkpoint with a config.json.")
    return tuple(repo.file(name) for name in names)


def _missing(cache: Path, file: RemoteFile) -> int:
    repo = RepoCache(cache, file.repo)
    if repo.pointer(file.commit, file.path).exists():
        return 0
    if file.sha256 is None:
        return file.size
    if repo.blob(file.sha256).exists():
        return 0
    return file.size - arrived(repo.part(file.sha256), file.size)


def check_space(plan: Plan, cache: Path) -> None:
    """Raises DiskFullError if the pair does not fit beside what is there."""
    # A converted draft is at most as large as its checkpoint.
    converted = sum(file.size for file in plan.draft) if plan.converts else 0
    missing = plan.bytes_missing + converted - free_bytes(cache)
    if missing > 0:
        raise disk_full(plan.entry.name, missing, cache)


def enqueue(
    queue: Queue, files: Sequence[RemoteFile], revision: str = "main", sha256: str | None = None
) -> list[int]:
    """Queue the files of a model; returns the jobs' numbers. `sha256` pins the first of them."""
    pins = [sha256, *[None] * (len(files) - 1)]
    return [
        queue.add(FileRequest(file.repo, file.path, revision, pin), file.size)
        for file, pin in zip(files, pins, strict=True)
    ]


def start(queue: Queue, plan: Plan) -> list[int]:
    """Check the disk and queue all files of a pair. Raises DiskFullError."""
    target, draft = plan.entry.target, plan.entry.draft
    check_space(plan, queue.hub.cache_dir)
    journal.begin(plan.entry.name)
    return [
        *enqueue(queue, plan.target, target.revision, target.sha256),
        *enqueue(queue, plan.draft, draft.revision, draft.sha256),
    ]


def finish(
    plan: Plan,
    cache: Path,
    draft_type: str = DEFAULT_DRAFT_TYPE,
    on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Pair:
    """The pair once its files are here; converts the draft where it is a checkpoint.

    `on_progress` gets the stage and the bytes done and in all; what it raises stops the conversion.
    Raises ConversionError, HubError, OSError.
    """
    entry = plan.entry
    here = status(entry, cache)
    draft = here.draft
    if plan.converts and here.target and here.checkpoint:
        draft = converted_path(entry.name, draft_type)
        if draft.exists():
            draft.touch()  # of several types, the newest is loaded
        else:
            from eaglechat.hub.convert import convert  # noqa: PLC0415 - slow, seldom needed

            draft.parent.mkdir(parents=True, exist_ok=True)
            convert(
                here.checkpoint,
                here.target,
                draft,
                draft_type,
                lambda step: on_progress(step.stage, step.done, step.total),
            )
    if here.target is None or draft is None:
        raise HubError(f"A file of {entry.name} has gone since it was downloaded: try again.")
    journal.end(entry.name)
    return Pair(entry.name, here.target, draft, "catalogue", note=entry.note)


def memory_of(hub: Hub, plan: Plan, n_ctx: int) -> MemoryNeed:
    """Memory the pair will need, from headers on the Hub: at a context of `n_ctx` tokens, or where
    that is 0 at one of at most `USUAL_CONTEXT`. Raises HubError, GGUFError.

    The draft of a checkpoint counts as large as the checkpoint, with the cache of one layer of
    the target.
    """
    target = replace(hub.figures(plan.target[0]), size_bytes=sum(file.size for file in plan.target))
    draft_bytes = sum(file.size for file in plan.draft)
    n_ctx = n_ctx or min(target.n_ctx_train or USUAL_CONTEXT, USUAL_CONTEXT)
    if not plan.converts:
        draft = replace(hub.figures(plan.draft[0]), size_bytes=draft_bytes)
        return memory_need(target, draft, n_ctx)
    need = memory_need(target, None, n_ctx)
    layer = need.target_kv // max(target.n_layers, 1)
    return replace(need, draft_weights=draft_bytes, draft_kv=layer)

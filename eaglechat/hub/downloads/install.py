"""Installing a pair: which quantisation of its target, what the Hub has of it, whether it can be
used here, and the conversion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import msgspec

from eaglechat.gguf import pairing
from eaglechat.gguf.header import GGUFError, GGUFHeader, read_header
from eaglechat.gguf.memory import MemoryNeed, memory_need
from eaglechat.gguf.preflight import DRAFT_ARCHITECTURE
from eaglechat.hub import fit
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.downloads.client import Hub, RemoteFile, RemoteRepo
from eaglechat.hub.downloads.find_drafts import checkpoint_files, judge
from eaglechat.hub.errors import GatedError, HubError, disk_full
from eaglechat.hub.fit import Machine, Quantisation
from eaglechat.hub.local.cache import RepoCache, free_bytes
from eaglechat.hub.local.installed import DRAFT_TYPE, converted_path, status, statuses
from eaglechat.hub.local.library import files_here, find_file
from eaglechat.hub.local.model import LocalModel
from eaglechat.hub.local.pairs import Pair
from eaglechat.hub.references import (
    InvalidReferenceError,
    ModelFiles,
    ModelSource,
    choose,
    group_models,
    whole_models,
)
from eaglechat.wire.drafters import DrafterKind

USUAL_CONTEXT = 1 << 13
"""Tokens of context for which memory is estimated before a download."""


@dataclass(frozen=True)
class Plan:
    """The files of a pair to download, with exact sizes and hashes from the Hub."""

    entry: CatalogueEntry
    """With the target's file filled in."""
    target: tuple[RemoteFile, ...]
    draft: tuple[RemoteFile, ...]
    gated: tuple[str, ...]
    """Repositories whose licence must be accepted on their page first."""
    licences: tuple[tuple[str, str], ...]
    """Each repository and the licence that its card states."""
    bytes_total: int
    bytes_missing: int
    is_converted: bool = False
    """The draft was converted before: its checkpoint, which may be deleted then, is not needed."""

    @property
    def converts(self) -> bool:
        return bool(self.entry.draft.checkpoint)

    @property
    def files(self) -> tuple[RemoteFile, ...]:
        return self.target if self.is_converted else (*self.target, *self.draft)


def plan(hub: Hub, entry: CatalogueEntry, machine: Machine = None, n_ctx: int = 0) -> Plan:
    """Ask the Hub for a pair's files. A target without a file is the quantisation that fits the
    machine. Raises HubError, InvalidReferenceError, GGUFError."""
    models = files_here(cache=hub.cache_dir)
    listings: dict[str, RemoteRepo] = {}
    target: tuple[RemoteFile, ...] = ()
    draft: tuple[RemoteFile, ...] = ()
    if entry.target.path and not entry.target.local.is_file():
        raise InvalidReferenceError(f"The target of {entry.name} has gone: {entry.target.path}.")
    if entry.draft:
        listing = hub.repo(entry.draft.of_hub, entry.draft.revision)
        listings[listing.repo] = listing
        if entry.draft.repo:
            draft = _model(listing, entry.draft)
        else:
            draft = tuple(listing.file(name) for name in checkpoint_files(listing))
        if not draft:
            raise InvalidReferenceError(f"{listing.repo} holds no checkpoint with a config.json.")
    if entry.target.repo:
        listing = hub.repo(entry.target.repo, entry.target.revision)
        source = entry.target
        if source.is_open:
            # One that is here already, else what fits.
            here = statuses([entry], models)[0].target
            named = {PurePosixPath(one.first).name: one for one in group_models(listing.paths)}
            wanted = named.get(here.name) if here else None
            if wanted is None and machine is not None:
                beside = sum(file.size for file in draft)
                best = fit.best(left_open(hub, listing, source, n_ctx, beside), machine)
                wanted = best.model if best else None
            wanted = wanted or choose(source, listing.paths)
            source = msgspec.structs.replace(source, file=wanted.first)
            entry = msgspec.structs.replace(entry, target=source)
        listings = {listing.repo: listing, **listings}
        target = _model(listing, source)
    repos = listings.values()
    is_converted = bool(entry.draft.checkpoint) and converted_path(entry.name).exists()
    files = target if is_converted else (*target, *draft)
    return Plan(
        entry=entry,
        target=target,
        draft=draft,
        gated=tuple(repo.repo for repo in repos if repo.gated),
        licences=tuple((repo.repo, repo.licence) for repo in repos if repo.licence),
        bytes_total=sum(file.size for file in files),
        bytes_missing=sum(_missing(hub.cache_dir, file, models) for file in files),
        is_converted=is_converted,
    )


def check_draft(hub: Hub, plan: Plan, *, is_new: bool = False) -> None:
    """Raise HubError if the draft is a checkpoint that cannot be converted, before its download; of
    a pair that is new, also if it does not fit.

    A gated pair cannot be read before its download, so it is not checked.
    Raises HubError, GGUFError.
    """
    if not (plan.converts or is_new) or plan.gated or not plan.bytes_missing:
        return
    if problem := why_unfit(hub, plan):
        cannot = "cannot be converted" if plan.converts else "does not fit"
        name = plan.entry.name
        raise HubError(f"The draft of {name} {cannot}: {problem}. Nothing was downloaded.")


def check_access(hub: Hub, plan: Plan) -> None:
    """Raise HubError if this user has no access to one of the pair's gated repositories, so that no
    draft is downloaded without its target."""
    here = files_here(cache=hub.cache_dir) if plan.gated else []
    closed = (file for file in plan.files if file.repo in plan.gated)
    wanted = {file.repo: file for file in closed if _missing(hub.cache_dir, file, here)}
    for file in wanted.values():
        hub.metadata(file.repo, file.path, file.commit)


def why_unfit(hub: Hub, plan: Plan) -> str | None:
    """Why a plan's draft does not fit its target, judged by their headers; None if it fits.

    Raises HubError, GGUFError.
    """
    if not plan.draft:
        return None
    target = hub.peek(plan.target[0]) if plan.target else _target(hub, plan)
    return judge(hub, plan.draft, target).problem


def _model(repo: RemoteRepo, source: ModelSource) -> tuple[RemoteFile, ...]:
    """The files of a model. The first has the hash that the catalogue pins, if it pins one."""
    first, *others = (repo.file(name) for name in choose(source, repo.paths).files)
    return (replace(first, sha256=source.sha256 or first.sha256), *others)


def _missing(cache: Path, file: RemoteFile, here: Sequence[LocalModel]) -> int:
    repo = RepoCache(cache, file.repo)
    if repo.pointer(file.commit, file.path).exists():
        return 0
    if find_file(here, file.repo, file.path, file.size, file.sha256) is not None:
        return 0
    if file.sha256 is None:
        return file.size
    if repo.blob(file.sha256).exists():
        return 0
    return max(file.size - repo.received(file.sha256), 0)


def check_disk(plan: Plan, cache: Path) -> None:
    """Raise HubError if the disk has no room for a pair."""
    # A converted draft is at most as large as its checkpoint.
    is_to_convert = plan.converts and not plan.is_converted
    converted = sum(file.size for file in plan.draft) if is_to_convert else 0
    missing = plan.bytes_missing + converted - free_bytes(cache)
    if missing > 0:
        raise disk_full(plan.entry.name, missing, cache)


def finish(
    plan: Plan,
    cache: Path,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Pair, tuple[str, ...]]:
    """Convert the draft of a downloaded pair if it is a checkpoint; return the pair, and what the
    conversion did not take literally.

    `on_progress` gets the bytes done and the total; an exception it raises stops the conversion and
    is passed on. Raises ConversionError, HubError, OSError.
    """
    entry = plan.entry
    here = status(entry, cache)
    draft = here.draft
    notes: tuple[str, ...] = ()
    if draft is None and here.target and here.checkpoint:
        from eaglechat.hub.convert import convert  # noqa: PLC0415 - imports numpy and gguf

        draft = converted_path(entry.name)
        draft.parent.mkdir(parents=True, exist_ok=True)
        notes = convert(here.checkpoint, here.target, draft, DRAFT_TYPE, on_progress).notes
    if here.target is None or (draft is None and plan.draft):
        raise HubError(f"A file of {entry.name} has gone since it was downloaded: try again.")
    return Pair(entry.name, here.target, draft, "catalogue", note=entry.note), notes


@dataclass(frozen=True)
class Facts:
    """What the headers of a pair's files say of it, for one context size."""

    memory: MemoryNeed
    drafters: tuple[DrafterKind, ...]
    """What the pair drafts with, besides n-grams."""


def facts_of(hub: Hub, plan: Plan, n_ctx: int) -> Facts | None:
    """The facts of a pair on the Hub at a context of `n_ctx` tokens; None if its headers cannot be
    read, as those of a gated repository. For `n_ctx` 0 and for a checkpoint, the memory is as of
    `need_of`. Raises HubError."""
    try:
        target = _target(hub, plan)
        draft_bytes = sum(file.size for file in plan.draft)
        need, kinds = need_of(target, n_ctx, draft_bytes), pairing.kinds(target, None)
        if plan.converts:
            kind = plan.entry.drafter or judge(hub, plan.draft, target).kind
            kinds = (*((kind,) if kind else ()), *kinds)
        elif plan.draft:
            draft = replace(hub.beginning(plan.draft[0]), size_bytes=draft_bytes)
            need = memory_need(target, draft, usual_context(target, n_ctx))
            is_told = draft.architecture == DRAFT_ARCHITECTURE
            kinds = pairing.kinds(target, draft if is_told else hub.peek(plan.draft[0]))
    except (GGUFError, GatedError):
        return None
    return Facts(need, kinds)


def _target(hub: Hub, plan: Plan) -> GGUFHeader:
    """As `read_target`; the whole header of a file on this machine."""
    if not plan.target:
        return read_header(plan.entry.target.local)
    target = read_target(hub, plan.target)
    return replace(target, size_bytes=sum(file.size for file in plan.target))


# What a target needs in each quantisation


def weigh(
    hub: Hub,
    repo: RemoteRepo,
    models: Sequence[ModelFiles],
    n_ctx: int = 0,
    draft_bytes: int = 0,
) -> list[Quantisation]:
    """What each of these models of a repository needs, the largest first. They differ in their
    weights only, so one header is read. Raises HubError, GGUFError."""
    if not models:
        return []
    # The first shard of a split model may hold no weights.
    whole = min(models, key=lambda model: len(model.files))
    header = read_target(hub, [repo.file(name) for name in whole.files])
    cache = RepoCache(hub.cache_dir, repo.repo)
    begun = {left.path for left in cache.unfinished().values()}
    weighed = []
    for model in models:
        size = sum(repo.file(name).size for name in model.files)
        need = need_of(replace(header, size_bytes=size), n_ctx, draft_bytes)
        is_here = any(
            name in begun or cache.pointer(repo.commit, name).exists() for name in model.files
        )
        weighed.append(Quantisation(model, need, is_here))
    return sorted(weighed, key=lambda one: one.need.target_weights, reverse=True)


def left_open(
    hub: Hub, repo: RemoteRepo, reference: ModelSource, n_ctx: int = 0, draft_bytes: int = 0
) -> list[Quantisation]:
    """As `weigh`, of the targets between which a reference leaves the choice: of none if it names
    one, if there is only one, or if their header cannot be read, as before access to a gated
    repository. Raises HubError."""
    models = whole_models(repo.paths)
    if not reference.is_open or len(models) < 2:
        return []
    with suppress(GatedError, GGUFError):
        return weigh(hub, repo, models, n_ctx, draft_bytes)
    return []


def read_target(hub: Hub, files: Sequence[RemoteFile]) -> GGUFHeader:
    """The beginning of a target's header; the whole if it must say what its MTP heads are."""
    header = hub.beginning(files[0])
    has_heads = header.number("{arch}.nextn_predict_layers")
    return hub.peek_model(files) if has_heads else header


def need_of(target: GGUFHeader, n_ctx: int, draft_bytes: int = 0) -> MemoryNeed:
    """With a draft of which only the size is known: its KV cache is that of one layer of the
    target."""
    need = memory_need(target, None, usual_context(target, n_ctx))
    if not draft_bytes:
        return need
    layer = need.target_kv // max(target.n_layers, 1)
    return replace(need, draft_weights=draft_bytes, draft_kv=layer)


def usual_context(target: GGUFHeader, n_ctx: int) -> int:
    """0 means USUAL_CONTEXT, or the target's whole context if that is smaller."""
    return n_ctx or min(target.n_ctx_train or USUAL_CONTEXT, USUAL_CONTEXT)

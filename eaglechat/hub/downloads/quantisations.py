"""The quantisations of a repository, what each needs here, and which one comes where none is
named."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from eaglechat.gguf.header import GGUFError, GGUFHeader
from eaglechat.gguf.memory import MemoryNeed, memory_need
from eaglechat.hub.downloads.client import Hub, RemoteFile, RemoteRepo
from eaglechat.hub.errors import GatedError
from eaglechat.hub.fit import Quantisation
from eaglechat.hub.local.cache import RepoCache
from eaglechat.hub.references import ModelFiles, ModelSource, whole_models

USUAL_CONTEXT = 1 << 13
"""Tokens of context for which memory is estimated before a download."""


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
    if reference.file or reference.quantization or len(models) < 2:
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

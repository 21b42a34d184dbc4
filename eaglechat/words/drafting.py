"""What drafts for a model or a pair, in words, and what would help where nothing does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from eaglechat.gguf.header import NO_TEMPLATE, GGUFHeader
from eaglechat.gguf.memory import MemoryNeed
from eaglechat.gguf.pairing import RUNS_HEADS, takes_drafts, why_no_heads
from eaglechat.hub.units import format_bytes
from eaglechat.wire.drafters import DrafterKind
from eaglechat.words.wording import drafter

if TYPE_CHECKING:
    from eaglechat.hub.local.model import LocalModel


def badge(drafters: Iterable[DrafterKind]) -> str:
    """Who drafts for a model, or that none but n-grams does."""
    return ", ".join(dict.fromkeys(map(drafter, drafters))) or "no draft"


def of_model(model: LocalModel, drafters: Sequence[DrafterKind]) -> str:
    """`badge` of a model on this machine; empty for a file that neither drafts nor is drafted
    for."""
    return badge(drafters) if drafters or (model.is_target and not model.problem) else ""


def about(model: LocalModel, drafters: Sequence[DrafterKind]) -> str | None:
    """Why a file cannot be used, that it has no chat template, and why nothing but n-grams drafts
    for it; None if there is nothing to say."""
    if not model.is_target or model.header is None:
        return model.problem
    template = "" if model.header.has_chat_template else f"{NO_TEMPLATE.capitalize()}."
    draft = "" if drafters else why_none(model.header)
    return " ".join(filter(None, (template, draft))) or None


def shares(need: MemoryNeed, drafters: Sequence[DrafterKind]) -> str:
    """The memory of the target and of each drafter: weights and KV cache together. The weights of
    heads in the target's file are the target's."""
    parts = [("target", need.target_weights + need.target_kv)]
    if need.draft_weights:
        # What has a file of its own comes first.
        parts.append((drafter(next(iter(drafters), None)), need.draft_weights + need.draft_kv))
    if need.heads_kv:
        parts.append((drafter("mtp"), need.heads_kv))
    parts.append(("buffers", need.compute))
    return ", ".join(f"{name} {format_bytes(size)}" for name, size in parts if size)


def why_none(target: GGUFHeader) -> str:
    """Why nothing but n-grams drafts for a target alone, and what would help."""
    architecture = target.architecture
    reasons = [why_no_heads(target)]
    remedies = []
    if target.number("{arch}.nextn_predict_layers") > target.n_mtp_heads:
        remedies.append("a version of this model with its MTP heads")
    elif architecture in RUNS_HEADS:
        remedies.append("a version of this model with MTP heads, if there is one,")
    if takes_drafts(target):
        remedies.append("a draft that was made for it")
    else:
        reasons.append(f"no draft runs with {architecture} models")
    helps = " or ".join(remedies)
    return f"No draft model, n-grams only: {', and '.join(filter(None, reasons))}." + (
        f" {helps[:1].upper()}{helps[1:]} would help." if helps else ""
    )

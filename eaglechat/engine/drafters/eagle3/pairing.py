"""Whether an EAGLE-3 draft fits a target, by their GGUF headers.

For some pairs llama.cpp aborts the process: a target whose graph does not export layer inputs fails
a GGML_ASSERT. For others it gives the reason only in its log.
"""

from __future__ import annotations

from typing import Literal

from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.preflight import (
    EAGLE_4,
    EXTRACT_LAYERS,
    TARGET_ARCHITECTURES,
    PreflightError,
    check_readable,
)

DRAFT_LAYERS = 1

Variant = Literal["eagle3", "eagle4"]

_SHAREABLE = ("token_embd.weight", "output.weight")
"""A draft without these tensors uses its target's."""


def variant(draft: GGUFHeader) -> Variant:
    """An EAGLE-4 draft without its candidate head runs as EAGLE-3.1."""
    return "eagle4" if draft.get(EAGLE_4) else "eagle3"


def check(target: GGUFHeader, draft: GGUFHeader) -> None:
    """Raises PreflightError if the draft cannot run with the target."""
    _check_draft(draft)
    _check_match(target, draft)


def _check_draft(draft: GGUFHeader) -> None:
    layers = draft.numbers("eagle3.target_layers")
    if layers is None and draft.get("eagle3.target_layers") is not None:
        raise PreflightError(
            f"the draft {draft.path} does not give its extract layers (eagle3.target_layers) as a "
            f"list of {EXTRACT_LAYERS} whole numbers"
        )
    if layers is None or len(layers) != EXTRACT_LAYERS:
        raise PreflightError(
            f"the draft {draft.path} names {len(layers or ())} extract layers, "
            f"EAGLE-3 needs {EXTRACT_LAYERS}"
        )
    if draft.n_layers != DRAFT_LAYERS:
        raise PreflightError(
            f"the draft {draft.path} has {draft.n_layers} layers, an EAGLE-3 draft has "
            f"{DRAFT_LAYERS}"
        )


def _check_match(target: GGUFHeader, draft: GGUFHeader) -> None:
    if target.architecture not in TARGET_ARCHITECTURES:
        raise PreflightError(
            f"the target {target.path} has the architecture {target.architecture}, whose llama.cpp "
            f"graph does not export layer inputs, so the draft {draft.path.name} cannot read it; "
            "load the target without a draft"
        )
    wanted = draft.number("eagle3.target_hidden_size")
    if wanted != target.n_embd:
        raise PreflightError(
            f"the draft was made for a target with hidden size {wanted}, "
            f"{target.path.name} has {target.n_embd}"
        )
    if draft.n_vocab != target.n_vocab:
        raise PreflightError(
            f"the draft was made for a vocabulary of {draft.n_vocab} tokens, "
            f"{target.path.name} has {target.n_vocab}"
        )
    own = {tensor.name for tensor in draft.tensors}
    if draft.n_embd != target.n_embd and not own.issuperset(_SHAREABLE):
        raise PreflightError(
            f"the draft has hidden size {draft.n_embd} and no embeddings or output head of its "
            f"own, so it cannot use those of {target.path.name}, which has {target.n_embd}"
        )
    check_readable(target, draft.numbers("eagle3.target_layers") or ())

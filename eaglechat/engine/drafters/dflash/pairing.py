"""What the header of a block drafter says: its variant, its block, whether it fits a target.

All have llama.cpp's architecture `dflash`. DFlash (arXiv 2602.06036) fills a block of masks in one
pass. DSpark adds a Markov head, which lets a token see the one before it, and a head that says how
sure it is. DFlash2 selects each token from a lattice of candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.preflight import TARGET_ARCHITECTURES, PreflightError, check_readable
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

ARCHITECTURE = "dflash"

Variant = Literal["dflash", "dspark", "dflash2"]


@dataclass(frozen=True)
class Block:
    """How a drafter's block is filled in and read."""

    variant: Variant
    size: int
    """The most rows of a block, as trained."""
    first: int
    """The row that drafts the first token: 0 if the last token's own row does, else 1."""
    is_causal: bool = False
    """Whether a row of the block sees only those before it."""
    has_confidence: bool = False
    """Whether the draft says of each token how likely the target accepts it."""

    @property
    def longest(self) -> int:
        """The most tokens that a block drafts."""
        return min(self.size - self.first, N_DRAFT_MAX_LIMIT)


def variant(draft: GGUFHeader) -> Variant:
    """The kind of block drafter; llama.cpp tells them apart by the same tensors."""
    names = {tensor.name for tensor in draft.tensors}
    if "markov_w1.weight" in names:
        return "dspark"
    return "dflash2" if "selector_hidden.weight" in names else "dflash"


def block_of(draft: GGUFHeader) -> Block:
    kind = variant(draft)
    from_anchor = kind == "dspark" and draft.get("dflash.sample_from_anchor") is not False
    has_head = any(tensor.name == "conf_proj.weight" for tensor in draft.tensors)
    return Block(
        kind,
        size=draft.number("dflash.block_size"),
        first=0 if from_anchor else 1,
        is_causal=draft.get("dflash.attention.causal") is True,
        has_confidence=kind == "dspark" and has_head,
    )


def longest(draft: GGUFHeader) -> int:
    """The most tokens that it drafts at once."""
    return block_of(draft).longest


def check(target: GGUFHeader, draft: GGUFHeader) -> None:
    """Raises PreflightError if the two cannot run together; for some pairs llama.cpp would end the
    process. A draft's own vocabulary is checked by `vocabulary_map`."""
    name = target.path.name
    if target.architecture not in TARGET_ARCHITECTURES:
        raise PreflightError(
            f"the target {target.path} has the architecture {target.architecture}, whose llama.cpp "
            f"graph does not export layer inputs, so the draft {draft.path.name} cannot read it; "
            "load the target without a draft"
        )
    _check_draft(draft)
    if draft.n_embd != target.n_embd:
        raise PreflightError(
            f"the draft was made for a target with hidden size {draft.n_embd}, {name} has "
            f"{target.n_embd}"
        )
    if draft.n_vocab != target.n_vocab:
        raise PreflightError(
            f"the draft was made for a vocabulary of {draft.n_vocab} tokens, {name} has "
            f"{target.n_vocab}"
        )
    check_readable(target, draft.numbers("dflash.target_layers") or ())


def _check_draft(draft: GGUFHeader) -> None:
    if not draft.numbers("dflash.target_layers"):
        raise PreflightError(
            f"the draft {draft.path} does not give the target layers that it reads "
            "(dflash.target_layers) as a list of whole numbers"
        )
    if longest(draft) < 1:
        raise PreflightError(
            f"the draft {draft.path} gives as the size of its block (dflash.block_size) "
            f"{draft.get('dflash.block_size')}, in which it cannot draft a token"
        )
    mask = draft.number("tokenizer.ggml.mask_token_id", -1)
    if not 0 <= mask < draft.n_vocab:
        raise PreflightError(
            f"the draft {draft.path} has no mask token (tokenizer.ggml.mask_token_id), with which "
            "it would fill a block; convert it anew"
        )
    by_default = draft.n_embd // max(draft.number("dflash.attention.head_count"), 1)
    keys = draft.number("dflash.attention.key_length", by_default)
    values = draft.number("dflash.attention.value_length", by_default)
    if keys != values:
        raise PreflightError(
            f"the draft {draft.path} has attention heads with keys {keys} wide and values {values} "
            "wide, llama.cpp's graph of it needs the same width"
        )

"""The memory that a pair needs at a context size, from its headers.

Weights count as the size of their files. KV caches are exact. The compute buffers are an estimate,
within a few megabytes of what llama.cpp reports for the built-in pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from eaglechat.gguf.header import GGUFHeader
from eaglechat.wire.errors import SettingsError
from eaglechat.wire.protocol import FlashAttention, KvType, LoadOptions
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

CONTEXT_LIMIT = 1 << 15
"""The largest default context, in tokens."""
_LEAST_CONTEXT = 1 << 11
"""The smallest default context, in tokens: less does not hold a chat."""
_CELLS_MULTIPLE = 256
_F16_BYTES, _F32_BYTES = 2, 4
_N_UBATCH = 512
_BLOCK_BYTES: dict[KvType, tuple[int, int]] = {"f16": (1, 2), "q8_0": (32, 34)}
"""Type -> values per block, bytes per block."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes by purpose."""

    target_weights: int
    draft_weights: int
    target_kv: int
    draft_kv: int
    """Of the draft's file."""
    compute: int
    heads_kv: int = 0
    """Of MTP heads in the target's own file, which has their weights."""

    @property
    def total(self) -> int:
        kv = self.target_kv + self.draft_kv + self.heads_kv
        return self.target_weights + self.draft_weights + kv + self.compute


def context_size(
    target: GGUFHeader, draft: GGUFHeader | None, free: int | None, options: LoadOptions
) -> int:
    """The context size, in tokens: what the user has set, or the largest power of two, up to the
    target's training and `CONTEXT_LIMIT`, with which both models fit into `free` bytes. `free` is
    None if it is unknown."""
    if options.n_ctx:
        return options.n_ctx
    kv_types = options.kv_type, options.draft_kv_type
    most = min(target.n_ctx_train or CONTEXT_LIMIT, CONTEXT_LIMIT)
    n_ctx = 1 << (most.bit_length() - 1)
    while n_ctx > _LEAST_CONTEXT and free is not None:
        if memory_need(target, draft, n_ctx, *kv_types).total <= free:
            break
        n_ctx //= 2
    return n_ctx


def memory_need(
    target: GGUFHeader,
    draft: GGUFHeader | None,
    n_ctx: int,
    kv_type: KvType = "f16",
    draft_kv_type: KvType = "f16",
) -> MemoryNeed:
    """What a target and its draft need at a context of `n_ctx` tokens."""
    # Its own heads draft too, but not beside those of a sidecar.
    has_heads = target.n_mtp_heads > 0 and not (draft and draft.is_heads_alone)
    drafts = [*([draft] if draft else []), *([target] if has_heads else [])]
    compute = 0
    for header in [target, *drafts]:
        # The activations of a batch, its attention mask, and the logits of a round.
        feed_forward = _largest(header, "{arch}.feed_forward_length")
        compute += _N_UBATCH * (2 * feed_forward + 4 * header.n_embd) * _F32_BYTES
        compute += _N_UBATCH * n_ctx * _F16_BYTES
        compute += (N_DRAFT_MAX_LIMIT + 1) * header.n_vocab * _F32_BYTES
    of_draft = heads_kv_bytes if draft and draft.is_heads_alone else kv_bytes
    return MemoryNeed(
        target_weights=target.size_bytes,
        draft_weights=draft.size_bytes if draft else 0,
        target_kv=kv_bytes(target, n_ctx, kv_type),
        draft_kv=of_draft(draft, n_ctx, draft_kv_type) if draft else 0,
        compute=compute,
        heads_kv=heads_kv_bytes(target, n_ctx, draft_kv_type) if has_heads else 0,
    )


def f16_bytes(header: GGUFHeader) -> int:
    return header.data_start + _F16_BYTES * sum(
        math.prod(tensor.shape) for tensor in header.tensors
    )


def kv_bytes(header: GGUFHeader, n_ctx: int, kv_type: KvType = "f16") -> int:
    """The bytes of a model's KV cache.

    llama.cpp keeps layers with a sliding window in full. For models with latent attention (MLA)
    this is too much.
    """
    heads = list(header.numbers("{arch}.attention.head_count_kv") or ())
    if heads:
        # If the list is too short, its last value counts for the rest.
        heads += [heads[-1]] * (header.n_layers - len(heads))
    else:
        n_heads = _largest(header, "{arch}.attention.head_count")
        heads = [header.number("{arch}.attention.head_count_kv", n_heads)] * header.n_layers
    windowed = header.flags("{arch}.attention.sliding_window_pattern")
    width = width_windowed = sum(head_widths(header))
    if header.number("{arch}.attention.key_length_swa"):
        width_windowed = sum(head_widths(header, "_swa"))
    # Recurrent layers, and those that share another's keys and values, have none of their own.
    n_layers = header.n_layers - header.number("{arch}.attention.shared_kv_layers")
    interval = header.number("{arch}.full_attention_interval") or 1
    per_cell = 0
    for layer in range(interval - 1, n_layers, interval):
        is_windowed = layer < len(windowed) and windowed[layer]
        per_cell += heads[layer] * (width_windowed if is_windowed else width)
    return _cache_bytes(per_cell, n_ctx, kv_type)


def heads_kv_bytes(header: GGUFHeader, n_ctx: int, kv_type: KvType = "f16") -> int:
    """The bytes of the KV cache of a file's MTP heads, each of which is one attention layer."""
    n_heads = _largest(header, "{arch}.attention.head_count_kv")
    n_heads = n_heads or _largest(header, "{arch}.attention.head_count")
    per_cell = header.n_mtp_heads * n_heads * sum(head_widths(header))
    return _cache_bytes(per_cell, n_ctx, kv_type)


def _cache_bytes(per_cell: int, n_ctx: int, kv_type: KvType) -> int:
    """The bytes of a cache that keeps so many elements for each token."""
    cells = -(-n_ctx // _CELLS_MULTIPLE) * _CELLS_MULTIPLE
    values, size = _BLOCK_BYTES[kv_type]
    return per_cell * cells // values * size


def check_kv_type(header: GGUFHeader, kv_type: KvType, flash_attention: FlashAttention) -> None:
    """Raises SettingsError if a model's KV cache cannot have this type."""
    if kv_type == "f16":
        return
    if flash_attention == "off":
        raise SettingsError(
            f"a KV cache in {kv_type} needs flash attention, which is switched off "
            "(engine.flash_attention); switch it on, or keep the cache in f16"
        )
    block, _ = _BLOCK_BYTES[kv_type]
    for width in head_widths(header):
        if width % block:
            raise SettingsError(
                f"{header.path.name} has attention heads {width} wide, a KV cache in {kv_type} "
                f"needs a multiple of {block}; keep it in f16"
            )


def head_widths(header: GGUFHeader, suffix: str = "") -> tuple[int, int]:
    """How many elements the key and the value of one head have."""
    by_default = header.n_embd // (_largest(header, "{arch}.attention.head_count") or 1)
    key = header.number(f"{{arch}}.attention.key_length{suffix}", by_default)
    return key, header.number(f"{{arch}}.attention.value_length{suffix}", by_default)


def _largest(header: GGUFHeader, key: str) -> int:
    """The number of a key, or the largest if it is given per layer."""
    return max(header.numbers(key) or (header.number(key),))

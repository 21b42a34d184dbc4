"""Checks a checkpoint against its target, and derives the dimensions and tensor names of the draft.

The dimensions come from the tensors, because config.json may be wrong (AngelSlim's Qwen3-32B draft
names a wrong head size) and llama.cpp aborts the process on some mismatches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eaglechat.gguf.header import GGUFError, GGUFHeader, read_header
from eaglechat.gguf.preflight import (
    DRAFT_ARCHITECTURE,
    EXTRACT_LAYERS,
    TARGET_ARCHITECTURES,
    deepest_readable_layer,
)
from eaglechat.hub.convert.config import DraftConfig, llama3_factors, scaling_fields
from eaglechat.hub.convert.tensors import StoredTensor
from eaglechat.hub.errors import ConversionError

_LAYER = {
    "input_layernorm.weight": "blk.0.attn_norm.weight",
    "hidden_norm.weight": "blk.0.attn_norm_2.weight",
    "self_attn.q_proj.weight": "blk.0.attn_q.weight",
    "self_attn.k_proj.weight": "blk.0.attn_k.weight",
    "self_attn.v_proj.weight": "blk.0.attn_v.weight",
    "self_attn.o_proj.weight": "blk.0.attn_output.weight",
    "post_attention_layernorm.weight": "blk.0.ffn_norm.weight",
    "mlp.gate_proj.weight": "blk.0.ffn_gate.weight",
    "mlp.up_proj.weight": "blk.0.ffn_up.weight",
    "mlp.down_proj.weight": "blk.0.ffn_down.weight",
}
FC_NORMS = tuple(f"fc_norm.{third}.weight" for third in range(EXTRACT_LAYERS))
"""EAGLE-3.1's norm of each hidden state. The conversion multiplies them into `fc.weight`."""
_TOP = {
    "embed_tokens.weight": "token_embd.weight",
    "input_norm.weight": "enc.output_norm.weight",
    **{name: name for name in FC_NORMS},
    "fc.weight": "fc.weight",
    **{f"layers.0.{name}": gguf_name for name, gguf_name in _LAYER.items()},
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "d2t": "d2t",
}
_OPTIONAL = {"token_embd.weight", "enc.output_norm.weight", "output.weight", "d2t", *FC_NORMS}

_UNUSED = re.compile(r"t2d$|.*rotary_emb\.inv_freq$|efficient_lm_head")
"""Derived from other tensors, or EAGLE-4's candidate head, which only saves time: its full head
drafts the same or better."""

# Names of tensors that only an unsupported variant has, and why llama.cpp cannot run it. The first
# match counts.
_REFUSALS = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (r"mask_hidden|mask_embedding", "it is a P-EAGLE draft, which llama.cpp cannot run"),
        (
            r"q_a_proj|q_b_proj|kv_a_proj|kv_b_proj|kv_a_layernorm",
            "it uses DeepSeek's multi-head latent attention (MLA), "
            "which llama.cpp's eagle3 graph does not have",
        ),
        (r"layers\.[1-9]", "it has more than one layer, llama.cpp runs drafts of 1"),
        (r"\.bias$", "llama.cpp's eagle3 graph has no biases"),
        (r"[qk]_norm", "it norms queries and keys, which llama.cpp's eagle3 graph does not"),
        (r"experts|mlp\.gate\.", "it is a mixture of experts, llama.cpp's eagle3 graph is dense"),
        (
            r"_scale|_packed|_zero_point|qweight|qzeros|g_idx",
            "its weights are already quantised; convert the original checkpoint instead",
        ),
    )
)


@dataclass(frozen=True)
class ConvertibleDraft:
    """A draft that fits its target. Its weights are still on disk."""

    config: DraftConfig
    tensors: Mapping[str, StoredTensor]
    """By GGUF name, in the order that llama.cpp's converter writes them."""
    head_dim: int
    n_rot: int
    """The number of values per head that RoPE rotates: the first ones."""
    feed_forward: int
    target_layers: tuple[int, ...]
    """The layers of the target whose inputs the draft reads."""
    d2t: npt.NDArray[np.int64] | None
    """[draft vocabulary]: the target's token id of each draft token. None if the draft has the
    target's whole vocabulary."""
    notes: tuple[str, ...]
    """What in the checkpoint was not taken literally, in sentences for the user."""


def read_target(path: Path) -> GGUFHeader:
    """The header of a target. Raises ConversionError if no EAGLE-3 draft can read its layers."""
    try:
        target = read_header(path)
    except FileNotFoundError:
        raise ConversionError(f"the target {path} does not exist") from None
    except (OSError, GGUFError) as error:
        raise ConversionError(f"the target cannot be read: {error}") from error
    check_target(target)
    return target


def check_target(target: GGUFHeader) -> None:
    """Raise ConversionError if no EAGLE-3 draft can read this target's layers."""
    path = target.path
    if target.architecture == DRAFT_ARCHITECTURE:
        raise ConversionError(f"the target {path} is itself an EAGLE-3 draft")
    if not target.architecture:
        raise ConversionError(
            f"the target {path} names no architecture; of a split model, give the first file"
        )
    if target.architecture not in TARGET_ARCHITECTURES:
        raise ConversionError(
            f"the target {path.name} has the architecture {target.architecture}, whose llama.cpp "
            "graph does not export layer inputs, so no EAGLE-3 draft can read it"
        )
    if not target.n_vocab or not target.n_layers or not target.n_embd:
        raise ConversionError(
            f"the target {path.name} lacks its tokenizer, layer count or hidden size"
        )


def check_config(config: DraftConfig, target: GGUFHeader) -> tuple[int, ...]:
    """The target's layers that a draft reads, by its config.json.

    Raises ConversionError if config.json alone shows that the draft does not fit the target.
    """
    scaling_fields(config)
    _check_vocabulary(config.vocab_size, target)
    hidden = config.target_hidden_size or config.hidden_size
    if hidden != target.n_embd:
        raise ConversionError(
            f"the draft was made for a target with hidden size {hidden}, "
            f"{target.path.name} has {target.n_embd}"
        )
    return target_layers(config, target)


def _check_vocabulary(size: int, target: GGUFHeader) -> None:
    if size != target.n_vocab:
        raise ConversionError(
            f"the draft was made for a vocabulary of {size} tokens, "
            f"{target.path.name} has {target.n_vocab}"
        )


def examine(
    stored: Mapping[str, StoredTensor], config: DraftConfig, target: GGUFHeader
) -> ConvertibleDraft:
    """Everything that can be checked without reading tensors; `d2t` stays None.

    Raises ConversionError.
    """
    check_config(config, target)
    tensors = map_names(stored)
    for name, tensor in tensors.items():
        wanted = 1 if name == "d2t" or "norm" in name else 2
        if len(tensor.shape) != wanted:
            raise ConversionError(
                f"{tensor.name} has {len(tensor.shape)} dimensions, a draft's has {wanted}"
            )
    notes: list[str] = []
    _check_target_size(tensors, config, target)
    head_dim = _head_dim(tensors, config, notes)
    n_rot = int(head_dim * config.rope.partial_rotary_factor)
    if n_rot < 2 or n_rot % 2:
        raise ConversionError(
            f"the draft rotates {n_rot} of the {head_dim} values of a head "
            "(partial_rotary_factor), RoPE needs an even number"
        )
    feed_forward = tensors["blk.0.ffn_gate.weight"].shape[0]
    # It refuses impossible figures.
    llama3_factors(config, n_rot)
    if "d2t" in tensors and tensors["d2t"].dtype not in ("I64", "I32"):
        raise ConversionError(f"d2t is stored as {tensors['d2t'].dtype}, not as integers")
    for tensor in stored.values():
        if plain_name(tensor.name) in ("embed_tokens.weight", "t2d"):
            _check_vocabulary(tensor.shape[0] if tensor.shape else 0, target)
    _check_optional(tensors, config, target)
    _check_shapes(tensors, config, head_dim, feed_forward, target)
    layers = target_layers(config, target, notes)
    notes += _about_rope(config)
    return ConvertibleDraft(
        config, tensors, head_dim, n_rot, feed_forward, layers, None, tuple(notes)
    )


def _check_target_size(
    tensors: Mapping[str, StoredTensor], config: DraftConfig, target: GGUFHeader
) -> None:
    width = tensors["fc.weight"].shape[-1]
    if width == target.n_embd * EXTRACT_LAYERS:
        return
    if width == (config.target_hidden_size or config.hidden_size):
        raise ConversionError(
            f"the draft reads one hidden state of its target (fc.weight takes {width} values), "
            f"llama.cpp's eagle3 graph reads {EXTRACT_LAYERS}"
        )
    raise ConversionError(
        f"the draft was made for a target with hidden size {width / EXTRACT_LAYERS:g}, "
        f"{target.path.name} has {target.n_embd}"
    )


def _head_dim(tensors: Mapping[str, StoredTensor], config: DraftConfig, notes: list[str]) -> int:
    q_rows = tensors["blk.0.attn_q.weight"].shape[0]
    k_rows = tensors["blk.0.attn_k.weight"].shape[0]
    attention_width = tensors["blk.0.attn_output.weight"].shape[-1]
    if q_rows == 2 * attention_width:
        raise ConversionError(
            f"the draft's Q projection is gated (it has {q_rows} rows for {attention_width} "
            "attention outputs, as Baichuan's), which llama.cpp's eagle3 graph does not have"
        )
    if k_rows % config.n_kv_heads or q_rows % config.num_attention_heads:
        raise ConversionError(
            f"config.json names {config.num_attention_heads} heads and {config.n_kv_heads} "
            f"key-value heads, which do not divide the {q_rows} and {k_rows} rows of Q and K"
        )
    head_dim = q_rows // config.num_attention_heads
    if head_dim % 2:
        raise ConversionError(f"the draft's head size is {head_dim}, RoPE needs an even one")
    if config.head_dim is not None and config.head_dim != head_dim:
        notes.append(f"config.json says head_dim {config.head_dim}, the tensors have {head_dim}")
    return head_dim


def with_tokens(draft: ConvertibleDraft, target: GGUFHeader) -> ConvertibleDraft:
    """The draft with its `d2t`. A checkpoint stores it as token id minus index.

    Raises ConversionError, OSError.
    """
    if "d2t" not in draft.tensors:
        return draft
    offsets = draft.tensors["d2t"].read().reshape(-1).astype(np.int64)
    ids: npt.NDArray[np.int64] = offsets + np.arange(offsets.size, dtype=np.int64)
    outside = ids[(ids < 0) | (ids >= target.n_vocab)]
    if outside.size:
        raise ConversionError(
            f"d2t names token {outside[0]}, {target.path.name} has tokens 0 to {target.n_vocab - 1}"
        )
    values, counts = np.unique(ids, return_counts=True)
    if values.size != ids.size:
        raise ConversionError(
            f"d2t names token {values[counts > 1][0]} twice, so it is no mapping of vocabularies"
        )
    return replace(draft, d2t=ids)


def _check_optional(
    tensors: Mapping[str, StoredTensor], config: DraftConfig, target: GGUFHeader
) -> None:
    """Check that the optional tensors are those that the others and config.json need."""
    # A draft without embeddings or head uses the target's.
    lacking = [name for name in ("token_embd.weight", "output.weight") if name not in tensors]
    if lacking and config.hidden_size != target.n_embd:
        raise ConversionError(
            f"the draft has no {lacking[0]} of its own and cannot use the target's: its hidden "
            f"size is {config.hidden_size}, that of {target.path.name} is {target.n_embd}"
        )
    if "output.weight" in lacking and "d2t" in tensors:
        raise ConversionError("the checkpoint is not whole: it has d2t, but lacks lm_head.weight")
    if config.norm_before_fc != ("enc.output_norm.weight" in tensors):
        raise ConversionError(
            "config.json sets norm_before_fc, but the checkpoint lacks input_norm.weight"
            if config.norm_before_fc
            else "the checkpoint holds input_norm.weight, but config.json does not set "
            "norm_before_fc"
        )
    lacking = [name for name in FC_NORMS if name not in tensors]
    if lacking if config.fc_norm else len(lacking) < len(FC_NORMS):
        raise ConversionError(
            f"config.json sets fc_norm, but the checkpoint lacks {', '.join(lacking)}"
            if config.fc_norm
            else "the checkpoint holds fc_norm tensors, but config.json does not set fc_norm"
        )


def _check_shapes(
    tensors: Mapping[str, StoredTensor],
    config: DraftConfig,
    head_dim: int,
    feed_forward: int,
    target: GGUFHeader,
) -> None:
    hidden, fused = config.hidden_size, EXTRACT_LAYERS * target.n_embd
    q_rows, kv_rows = config.num_attention_heads * head_dim, config.n_kv_heads * head_dim
    draft_vocab = tensors["d2t"].shape[0] if "d2t" in tensors else target.n_vocab
    expected = {
        **dict.fromkeys(FC_NORMS, (target.n_embd,)),
        "fc.weight": (hidden, fused),
        "enc.output_norm.weight": (fused,),
        "blk.0.attn_norm.weight": (hidden,),
        "blk.0.attn_norm_2.weight": (hidden,),
        "blk.0.ffn_norm.weight": (hidden,),
        "blk.0.attn_q.weight": (q_rows, 2 * hidden),
        "blk.0.attn_k.weight": (kv_rows, 2 * hidden),
        "blk.0.attn_v.weight": (kv_rows, 2 * hidden),
        "blk.0.attn_output.weight": (hidden, q_rows),
        "blk.0.ffn_gate.weight": (feed_forward, hidden),
        "blk.0.ffn_up.weight": (feed_forward, hidden),
        "blk.0.ffn_down.weight": (hidden, feed_forward),
        "output_norm.weight": (hidden,),
        "output.weight": (draft_vocab, hidden),
        "token_embd.weight": (target.n_vocab, hidden),
    }
    for name, shape in expected.items():
        if name in tensors and tensors[name].shape != shape:
            raise ConversionError(
                f"{tensors[name].name} has the shape {list(tensors[name].shape)}, "
                f"a draft of these dimensions needs {list(shape)}"
            )


def _about_rope(config: DraftConfig) -> Iterable[str]:
    """What llama.cpp makes of the scaling of RoPE, in sentences for the user."""
    rope = config.rope
    figures = (rope.beta_fast, rope.beta_slow, rope.extrapolation_factor, rope.attention_factor)
    own = (32.0, 1.0, 1.0, None)
    if rope.rope_type.lower() == "yarn" and any(
        figure not in (None, mine) for figure, mine in zip(figures, own, strict=True)
    ):
        yield (
            "llama.cpp scales RoPE with beta_fast 32 and beta_slow 1 for any draft, not with the "
            "figures of config.json: fewer guesses may be accepted in long contexts"
        )


def target_layers(
    config: DraftConfig, target: GGUFHeader, notes: list[str] | None = None
) -> tuple[int, ...]:
    """The layers whose inputs the draft reads; what was interpreted is added to `notes`.

    llama.cpp numbers layers by their inputs. Trainers that number outputs write the usual choice
    (2, n/2, n-3) as (1, n/2-1, n-4), so ids that begin with 1 are taken for outputs.
    Raises ConversionError if the target has no such layers.
    """
    n_layers = target.n_layers
    layers = config.aux_layer_ids or (2, n_layers // 2, n_layers - 3)
    if not config.aux_layer_ids and notes is not None:
        notes.append(
            "config.json does not say which layers of its target the draft reads: the usual "
            f"{', '.join(map(str, layers))} were taken; if hardly any guess is accepted, they are "
            "others"
        )
    if layers[0] == 1:
        by_input = tuple(layer + 1 for layer in layers)
        if notes is not None:
            notes.append(
                f"the layer ids {', '.join(map(str, layers))} count outputs; "
                f"written as inputs {', '.join(map(str, by_input))}"
            )
        layers = by_input
    if min(layers) < 0 or max(layers) > deepest_readable_layer(target):
        raise ConversionError(
            f"the draft reads layers {', '.join(map(str, layers))} of its target, "
            f"{target.path.name} offers 0 to {deepest_readable_layer(target)}"
        )
    return layers


def plain_name(name: str) -> str:
    """A tensor's name without the prefixes that trainers add."""
    name = name.removeprefix("model.")
    return f"layers.0.{name[len('midlayer.') :]}" if name.startswith("midlayer.") else name


def map_names(stored: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors by their GGUF names, which are those of src/models/eagle3.cpp of llama.cpp.

    Raises ConversionError if a tensor has no place in that model, or one that it needs is missing.
    """
    by_name: dict[str, StoredTensor] = {}
    for tensor in stored.values():
        name = plain_name(tensor.name)
        if _UNUSED.match(name):
            continue
        if name not in _TOP:
            reason = f"llama.cpp's eagle3 graph has no place for its tensor {tensor.name}"
            for pattern, known in _REFUSALS:
                if pattern.search(tensor.name):
                    reason = f"{known} (it holds {tensor.name})"
                    break
            raise ConversionError(f"the draft cannot be converted: {reason}")
        if name in by_name:
            raise ConversionError(f"{by_name[name].name} and {tensor.name} are the same tensor")
        by_name[name] = tensor
    _refuse_incomplete(by_name)
    return {gguf_name: by_name[name] for name, gguf_name in _TOP.items() if name in by_name}


def _refuse_incomplete(by_name: Mapping[str, StoredTensor]) -> None:
    required = [name for name, gguf_name in _TOP.items() if gguf_name not in _OPTIONAL]
    missing = [name for name in required if name not in by_name]
    if "fc.weight" in missing or "layers.0.hidden_norm.weight" in missing:
        raise ConversionError(
            f"the checkpoint is not an EAGLE-3 draft: it has no {missing[0]}"
            if "fc.weight" in missing
            else "the checkpoint is an EAGLE or EAGLE-2 draft: it has no hidden_norm.weight"
        )
    if missing:
        raise ConversionError(f"the checkpoint is not whole: it lacks {', '.join(missing)}")
    for name, tensor in by_name.items():
        if name != "d2t" and not tensor.holds_weights:
            raise ConversionError(
                f"{tensor.name} is stored as {tensor.dtype}; "
                "convert the original checkpoint in F32, F16 or BF16 instead"
            )

"""Checks a checkpoint against its target, and derives the dimensions and tensor names of the draft.

The dimensions come from the tensors, because config.json may be wrong (AngelSlim's Qwen3-32B draft
names a wrong head size) and llama.cpp aborts the process on some mismatches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.preflight import (
    EXTRACT_LAYERS,
    deepest_readable_layer,
)
from eaglechat.hub.convert.checkpoint import WEIGHT_TYPES, StoredTensor
from eaglechat.hub.convert.config import DraftConfig, scaling_fields
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
_NAMES = {
    "embed_tokens.weight": "token_embd.weight",
    "input_norm.weight": "enc.output_norm.weight",
    **{name: name for name in FC_NORMS},
    "fc.weight": "fc.weight",
    **{f"layers.0.{name}": gguf_name for name, gguf_name in _LAYER.items()},
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "d2t": "d2t",
}
_UNUSED = re.compile(r"t2d$|.*rotary_emb\.inv_freq$|efficient_lm_head")
"""Derived from other tensors, or EAGLE-4's candidate head, which only saves time."""

_NO_PLACE = (
    (r"\.bias$", "llama.cpp's eagle3 graph has no biases"),
    (r"[qk]_norm", "it norms queries and keys, which llama.cpp's eagle3 graph does not"),
    (r"experts|mlp\.gate\.", "it is a mixture of experts, llama.cpp's eagle3 graph is dense"),
    (
        r"_scale|_packed|_zero_point|qweight|qzeros|g_idx",
        "its weights are already quantised; convert the original checkpoint instead",
    ),
    ("", "llama.cpp's eagle3 graph has no place for its tensors"),
)
"""Names of tensors that a draft cannot have, and why; the first match counts."""


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


def check_config(
    config: DraftConfig, target: GGUFHeader, notes: list[str] | None = None
) -> tuple[int, ...]:
    """The target's layers that a draft reads, by its config.json; what was interpreted is added to
    `notes`.

    Raises ConversionError if config.json alone shows that the draft does not fit the target.
    """
    scaling_fields(config)
    if config.vocab_size != target.n_vocab:
        raise ConversionError(
            f"the draft was made for a vocabulary of {config.vocab_size} tokens, "
            f"{target.path.name} has {target.n_vocab}"
        )
    hidden = config.target_hidden_size or config.hidden_size
    if hidden != target.n_embd:
        raise ConversionError(
            f"the draft was made for a target with hidden size {hidden}, "
            f"{target.path.name} has {target.n_embd}"
        )
    return _target_layers(config, target, [] if notes is None else notes)


def examine(
    stored: Mapping[str, StoredTensor], config: DraftConfig, target: GGUFHeader
) -> ConvertibleDraft:
    """The draft that a checkpoint holds. Of its tensors, only `d2t` is read.

    Raises ConversionError, OSError.
    """
    notes: list[str] = []
    layers = check_config(config, target, notes)
    tensors = _by_gguf_name(stored)
    _check_whole(tensors, config, target)
    n_heads, q_rows = config.num_attention_heads, _n_rows(tensors["blk.0.attn_q.weight"])
    head_dim = q_rows // n_heads
    if head_dim * n_heads != q_rows:
        raise ConversionError(
            f"config.json names {n_heads} heads, which do not divide the {q_rows} rows of Q"
        )
    if config.head_dim is not None and config.head_dim != head_dim:
        notes.append(f"config.json says head_dim {config.head_dim}, the tensors have {head_dim}")
    n_rot = int(head_dim * config.rope.partial_rotary_factor)
    if n_rot < 2 or n_rot % 2 or head_dim % 2:
        raise ConversionError(
            f"the draft rotates {n_rot} of the {head_dim} values of a head "
            "(partial_rotary_factor), RoPE needs even numbers"
        )
    feed_forward = _n_rows(tensors["blk.0.ffn_gate.weight"])
    n_draft_vocab = _n_rows(tensors["d2t"]) if "d2t" in tensors else target.n_vocab
    shapes = {
        "token_embd.weight": (target.n_vocab, config.hidden_size),
        **dict.fromkeys(FC_NORMS, (target.n_embd,)),
        "d2t": (n_draft_vocab,),
        **weight_shapes(
            config.hidden_size,
            n_features=EXTRACT_LAYERS * target.n_embd,
            q_rows=q_rows,
            kv_rows=config.n_kv_heads * head_dim,
            feed_forward=feed_forward,
            n_draft_vocab=n_draft_vocab,
        ),
    }
    for name, tensor in tensors.items():
        if tensor.shape != shapes[name]:
            raise ConversionError(
                f"{tensor.name} has the shape {list(tensor.shape)}, a draft of these dimensions "
                f"for {target.path.name} needs {list(shapes[name])}"
            )
        if name == "d2t" and tensor.dtype not in ("I64", "I32"):
            raise ConversionError(f"d2t is stored as {tensor.dtype}, not as integers")
        if name != "d2t" and tensor.dtype not in WEIGHT_TYPES:
            raise ConversionError(
                f"{tensor.name} is stored as {tensor.dtype}; "
                "convert the original checkpoint in F32, F16 or BF16 instead"
            )
    notes += _about_rope(config)
    d2t = _tokens(tensors["d2t"], target) if "d2t" in tensors else None
    return ConvertibleDraft(
        config, tensors, head_dim, n_rot, feed_forward, layers, d2t, tuple(notes)
    )


def weight_shapes(
    hidden: int,
    *,
    n_features: int,
    q_rows: int,
    kv_rows: int,
    feed_forward: int,
    n_draft_vocab: int,
) -> dict[str, tuple[int, ...]]:
    """The shape of every weight of a draft's own layers, by GGUF name, in numpy's order."""
    return {
        "enc.output_norm.weight": (n_features,),
        "fc.weight": (hidden, n_features),
        "blk.0.attn_norm.weight": (hidden,),
        "blk.0.attn_norm_2.weight": (hidden,),
        "blk.0.attn_q.weight": (q_rows, 2 * hidden),
        "blk.0.attn_k.weight": (kv_rows, 2 * hidden),
        "blk.0.attn_v.weight": (kv_rows, 2 * hidden),
        "blk.0.attn_output.weight": (hidden, q_rows),
        "blk.0.ffn_norm.weight": (hidden,),
        "blk.0.ffn_gate.weight": (feed_forward, hidden),
        "blk.0.ffn_up.weight": (feed_forward, hidden),
        "blk.0.ffn_down.weight": (hidden, feed_forward),
        "output_norm.weight": (hidden,),
        "output.weight": (n_draft_vocab, hidden),
    }


def _by_gguf_name(stored: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors by their GGUF names, which are those of src/models/eagle3.cpp of llama.cpp.

    Raises ConversionError if a tensor has no place in that model.
    """
    by_name: dict[str, StoredTensor] = {}
    for tensor in stored.values():
        name = tensor.name.removeprefix("model.")
        if name.startswith("midlayer."):
            name = f"layers.0.{name[len('midlayer.') :]}"
        if _UNUSED.match(name):
            continue
        if name not in _NAMES:
            why = next(why for pattern, why in _NO_PLACE if re.search(pattern, name))
            raise ConversionError(f"the draft cannot be converted: {why} (it holds {tensor.name})")
        if name in by_name:
            raise ConversionError(f"{by_name[name].name} and {tensor.name} are the same tensor")
        by_name[name] = tensor
    return {gguf_name: by_name[name] for name, gguf_name in _NAMES.items() if name in by_name}


def _check_whole(
    tensors: Mapping[str, StoredTensor], config: DraftConfig, target: GGUFHeader
) -> None:
    """Raise ConversionError unless the tensors are those that config.json tells of."""
    norms = {
        *(("enc.output_norm.weight",) if config.norm_before_fc else ()),
        *(FC_NORMS if config.fc_norm else ()),
    }
    for name, tensor in tensors.items():
        if name in ("enc.output_norm.weight", *FC_NORMS) and name not in norms:
            raise ConversionError(
                f"the checkpoint holds {tensor.name}, but config.json sets neither norm_before_fc "
                "nor fc_norm for it"
            )
    # A draft without embeddings or head uses the target's, which must have its hidden size.
    shared = {"token_embd.weight"} | ({"output.weight"} if "d2t" not in tensors else set())
    optional = {"d2t", *(shared if config.hidden_size == target.n_embd else ())}
    optional |= {"enc.output_norm.weight", *FC_NORMS} - norms
    lacking = [n for n, gguf_name in _NAMES.items() if gguf_name not in {*tensors, *optional}]
    if lacking:
        raise ConversionError(
            f"the checkpoint is not an EAGLE-3 draft, or not whole: it lacks {', '.join(lacking)}"
        )


def _n_rows(tensor: StoredTensor) -> int:
    return tensor.shape[0] if tensor.shape else 0


def _tokens(stored: StoredTensor, target: GGUFHeader) -> npt.NDArray[np.int64]:
    """The token ids of `d2t`, which a checkpoint stores as token id minus index.

    Raises ConversionError, OSError.
    """
    offsets = stored.read().reshape(-1).astype(np.int64)
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
    return ids


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


def _target_layers(config: DraftConfig, target: GGUFHeader, notes: list[str]) -> tuple[int, ...]:
    """The layers whose inputs the draft reads; what was interpreted is added to `notes`.

    llama.cpp numbers layers by their inputs. Trainers that number outputs write the usual choice
    (2, n/2, n-3) as (1, n/2-1, n-4), so ids that begin with 1 are taken for outputs.
    Raises ConversionError if the target has no such layers.
    """
    n_layers = target.n_layers
    layers = config.aux_layer_ids or (2, n_layers // 2, n_layers - 3)
    if not config.aux_layer_ids:
        notes.append(
            "config.json does not say which layers of its target the draft reads: the usual "
            f"{', '.join(map(str, layers))} were taken; if hardly any guess is accepted, they are "
            "others"
        )
    if layers[0] == 1:
        by_input = tuple(layer + 1 for layer in layers)
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

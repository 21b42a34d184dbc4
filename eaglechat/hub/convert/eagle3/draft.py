"""Checks a checkpoint against its target, and works out the draft's dimensions.

The dimensions come from the tensors: a config.json may be wrong (AngelSlim's Qwen3-32B draft
names a head size it does not have), and llama.cpp aborts the process on some mismatches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.preflight import deepest_readable_layer
from eaglechat.hub.convert.eagle3.mapping import FC_NORMS, map_names, plain_name
from eaglechat.hub.convert.eagle3.rope import llama3_factors, scaling_fields
from eaglechat.hub.convert.errors import ConversionError
from eaglechat.hub.convert.source.config import EXTRACT_LAYERS, DraftConfig
from eaglechat.hub.convert.source.tensors import StoredTensor


@dataclass(frozen=True)
class Draft:
    """A draft that fits its target: what goes into the GGUF, tensors still on disk."""

    config: DraftConfig
    tensors: Mapping[str, StoredTensor]
    """By GGUF name."""
    head_dim: int
    n_rot: int
    """Values of a head that RoPE rotates, the first ones."""
    feed_forward: int
    target_layers: tuple[int, ...]
    """The three layers of the target whose inputs the draft reads."""
    d2t: npt.NDArray[np.int64] | None
    """[draft vocabulary] -> token of the target; None for a draft of the whole vocabulary."""
    notes: tuple[str, ...]
    """What the checkpoint said that was not taken literally."""


def check_config(config: DraftConfig, target: GGUFHeader) -> None:
    """What config.json alone says of fitting the target. Raises ConversionError."""
    scaling_fields(config)
    _check_vocabulary([config.vocab_size], target)
    target_layers(config, target)


def examine(stored: Mapping[str, StoredTensor], config: DraftConfig, target: GGUFHeader) -> Draft:
    """Check everything that needs no weights; `d2t` is not read. Raises ConversionError."""
    check_config(config, target)
    tensors = map_names(stored)
    _check_dimensions(tensors)
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
    llama3_factors(config, n_rot)
    _check_d2t(tensors)
    _check_vocabulary(_vocabularies(stored, tensors), target)
    _check_shared(tensors, config, target)
    _check_shapes(tensors, config, head_dim, feed_forward, target)
    layers = target_layers(config, target, notes)
    notes += [*_about_norms(config), *_about_yarn(config)]
    return Draft(config, tensors, head_dim, n_rot, feed_forward, layers, None, tuple(notes))


def _check_dimensions(tensors: Mapping[str, StoredTensor]) -> None:
    for name, tensor in tensors.items():
        wanted = 1 if name == "d2t" or "norm" in name else 2
        if len(tensor.shape) != wanted:
            raise ConversionError(
                f"{tensor.name} has {len(tensor.shape)} dimensions, a draft's has {wanted}"
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


def _check_d2t(tensors: Mapping[str, StoredTensor]) -> None:
    if "d2t" in tensors and tensors["d2t"].dtype not in ("I64", "I32"):
        raise ConversionError(f"d2t is stored as {tensors['d2t'].dtype}, not as integers")


def with_tokens(draft: Draft, target: GGUFHeader) -> Draft:
    """The draft with its `d2t`, which a checkpoint holds as distances from their own index.

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


def _vocabularies(
    stored: Mapping[str, StoredTensor], tensors: Mapping[str, StoredTensor]
) -> list[int]:
    sized = [tensors["token_embd.weight"]] if "token_embd.weight" in tensors else []
    sized += [tensor for tensor in stored.values() if plain_name(tensor.name) == "t2d"]
    return [tensor.shape[0] if tensor.shape else 0 for tensor in sized]


def _check_vocabulary(sizes: Iterable[int], target: GGUFHeader) -> None:
    for size in sizes:
        if size != target.n_vocab:
            raise ConversionError(
                f"the draft was made for a vocabulary of {size} tokens, "
                f"{target.path.name} has {target.n_vocab}"
            )


def _check_shared(
    tensors: Mapping[str, StoredTensor], config: DraftConfig, target: GGUFHeader
) -> None:
    """What a draft leaves out it takes from the target, which must then be as wide."""
    lacking = [name for name in ("token_embd.weight", "output.weight") if name not in tensors]
    if lacking and config.hidden_size != target.n_embd:
        raise ConversionError(
            f"the draft has no {lacking[0]} of its own and cannot use the target's: its hidden "
            f"size is {config.hidden_size}, that of {target.path.name} is {target.n_embd}"
        )
    if "output.weight" in lacking and "d2t" in tensors:
        raise ConversionError("the checkpoint is not whole: it has d2t, but lacks lm_head.weight")


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


def _about_norms(config: DraftConfig) -> Iterable[str]:
    if config.fc_norm or config.norm_output:
        yield (
            "an EAGLE-3.1 draft, whose norms llama.cpp does not have: eaglechat's engine runs it, "
            "other programs guess badly with it"
        )
    if config.norm_output and not config.fc_norm and not config.speculators_model_type:
        yield (
            "norm_output is read as EAGLE-3.1's; SpecForge before September 2026 wrote it for "
            "plain EAGLE-3: if hardly any guess but the first is accepted, take it out of "
            "config.json and convert again"
        )


def _about_yarn(config: DraftConfig) -> Iterable[str]:
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
    """Layers by their inputs, as llama.cpp counts them; `notes` gets what was read differently.

    Trainers that count outputs write the usual choice (2, n/2, n-3) as (1, n/2-1, n-4).
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

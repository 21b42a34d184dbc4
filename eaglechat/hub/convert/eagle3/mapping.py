"""Names: from a checkpoint's tensors to those llama.cpp's eagle3 loader asks for.

Source of the GGUF side: src/models/eagle3.cpp of llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from eaglechat.gguf.preflight import EXTRACT_LAYERS
from eaglechat.hub.convert.errors import ConversionError
from eaglechat.hub.convert.source.tensors import StoredTensor

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
"""EAGLE-3.1's norm of each hidden state, which is multiplied into `fc.weight`."""
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

# Derived from others, and not read by llama.cpp.
_UNUSED = re.compile(r"t2d$|.*rotary_emb\.inv_freq$")

# A tensor that gives a variant away -> why llama.cpp cannot run it. First match counts.
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
        (r"experts|mlp\.gate\.", "it is a mixture of experts, llama.cpp's eagle3 graph is dense"),
        (
            r"_scale|_packed|_zero_point|qweight|qzeros|g_idx",
            "its weights are already quantised; convert the original checkpoint instead",
        ),
    )
)


def plain_name(name: str) -> str:
    """A tensor's name without what the trainers wrap around it."""
    name = name.removeprefix("model.")
    return f"layers.0.{name[len('midlayer.') :]}" if name.startswith("midlayer.") else name


def map_names(stored: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors by their GGUF names, in the order of the loader.

    Raises ConversionError for a tensor the loader has no place for, and for one it would miss.
    """
    by_name: dict[str, StoredTensor] = {}
    for tensor in stored.values():
        name = plain_name(tensor.name)
        if _UNUSED.match(name):
            continue
        if name not in _TOP:
            raise ConversionError(f"the draft cannot be converted: {_reason(tensor.name)}")
        if name in by_name:
            raise ConversionError(f"{by_name[name].name} and {tensor.name} are the same tensor")
        by_name[name] = tensor
    _refuse_incomplete(by_name)
    return {gguf_name: by_name[name] for name, gguf_name in _TOP.items() if name in by_name}


def _reason(name: str) -> str:
    for pattern, reason in _REFUSALS:
        if pattern.search(name):
            return f"{reason} (it holds {name})"
    return f"llama.cpp's eagle3 graph has no place for its tensor {name}"


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
    wrong = [tensor for name, tensor in by_name.items() if not tensor.holds_weights]
    for tensor in wrong:
        if plain_name(tensor.name) != "d2t":
            raise ConversionError(
                f"{tensor.name} is stored as {tensor.dtype}; "
                "convert the original checkpoint in F32, F16 or BF16 instead"
            )

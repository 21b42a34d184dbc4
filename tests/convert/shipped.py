"""The shipped draft as the SpecForge checkpoint it could have come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np

import eaglechat
from tests.convert.checkpoints import save_safetensors

SHIPPED = Path(eaglechat.__file__).parent / "models" / "smollm2-135m-eagle3.gguf"
HEAD_DIM = 64
NAMES = {
    "fc.weight": "fc.weight",
    "blk.0.attn_norm.weight": "midlayer.input_layernorm.weight",
    "blk.0.attn_norm_2.weight": "midlayer.hidden_norm.weight",
    "blk.0.attn_q.weight": "midlayer.self_attn.q_proj.weight",
    "blk.0.attn_k.weight": "midlayer.self_attn.k_proj.weight",
    "blk.0.attn_v.weight": "midlayer.self_attn.v_proj.weight",
    "blk.0.attn_output.weight": "midlayer.self_attn.o_proj.weight",
    "blk.0.ffn_norm.weight": "midlayer.post_attention_layernorm.weight",
    "blk.0.ffn_gate.weight": "midlayer.mlp.gate_proj.weight",
    "blk.0.ffn_up.weight": "midlayer.mlp.up_proj.weight",
    "blk.0.ffn_down.weight": "midlayer.mlp.down_proj.weight",
    "output_norm.weight": "norm.weight",
    "output.weight": "lm_head.weight",
}


def rotary_halves(rows: np.ndarray) -> np.ndarray:
    """From GGUF's pairs back to the halves of a checkpoint."""
    return np.stack([rows.reshape(-1, HEAD_DIM, rows.shape[-1])[:, i::2] for i in (0, 1)], 1)


def save_shipped_draft(directory: Path) -> Path:
    """Write config.json and model.safetensors (F32) into a directory."""
    reader = gguf.GGUFReader(SHIPPED)
    tensors: dict[str, tuple[str, np.ndarray]] = {}
    for tensor in reader.tensors:
        if tensor.name == "d2t":
            tensors["d2t"] = ("I64", np.asarray(tensor.data) - np.arange(tensor.data.size))
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if tensor.name in ("blk.0.attn_q.weight", "blk.0.attn_k.weight"):
            values = rotary_halves(values).reshape(values.shape)
        tensors[NAMES[tensor.name]] = ("F32", values)
    save_safetensors(directory / "model.safetensors", tensors)
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 576, "num_hidden_layers": 1,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
        "draft_vocab_size": 8192, "hidden_act": "silu",
        "max_position_embeddings": reader.fields["eagle3.context_length"].contents(),
        "rms_norm_eps": reader.fields["eagle3.attention.layer_norm_rms_epsilon"].contents(),
        "rope_theta": reader.fields["eagle3.rope.freq_base"].contents(),
    }  # fmt: skip
    (directory / "config.json").write_text(json.dumps(config))
    return directory

"""Small EAGLE-3 checkpoints of every dialect, and a target's GGUF, made of fixed numbers.

Values come from SHAKE-256 of the tensor's name, so the checkpoints are the same on every machine:
golden.json holds what llama.cpp's own converter makes of them.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests import ggufs

HIDDEN, HEADS, KV_HEADS, FEED_FORWARD = 32, 4, 2, 64
N_LAYERS, VOCAB, DRAFT_VOCAB = 12, 320, 64

LAYER_NORMS = ("input_layernorm", "hidden_norm", "post_attention_layernorm")


@dataclass
class Variant:
    """A checkpoint before it is written: config.json and tensors (name -> dtype, values)."""

    config: dict[str, Any]
    tensors: dict[str, tuple[str, np.ndarray]] = field(default_factory=dict)

    def put(self, name: str, *shape: int, dtype: str = "BF16") -> None:
        self.tensors[name] = (dtype, numbers(name, shape))

    def save(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.config))
        save_safetensors(directory / "model.safetensors", self.tensors)
        return directory


def numbers(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """F32 values in [-0.5, 0.5) that BF16 and F16 hold exactly."""
    data = hashlib.shake_256(name.encode()).digest(int(np.prod(shape)))
    return (np.frombuffer(data, np.int8).astype(np.float32) / 256).reshape(shape)


def stored_bytes(dtype: str, values: np.ndarray) -> bytes:
    if dtype == "BF16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    types = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "BOOL": "?"}
    return values.astype(types.get(dtype, "u1")).tobytes()


def save_safetensors(path: Path, tensors: dict[str, tuple[str, np.ndarray]]) -> None:
    header, data = {}, b""
    for name, (dtype, values) in tensors.items():
        start = len(data)
        data += stored_bytes(dtype, values)
        header[name] = {
            "dtype": dtype, "shape": list(values.shape), "data_offsets": [start, len(data)],
        }  # fmt: skip
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def draft(
    prefix: str = "midlayer.",
    *,
    dtype: str = "BF16",
    hidden: int = HIDDEN,
    heads: int = HEADS,
    kv_heads: int = KV_HEADS,
    head_dim: int | None = None,
    feed_forward: int = FEED_FORWARD,
    vocab: int = VOCAB,
    draft_vocab: int = DRAFT_VOCAB,
    full_vocabulary: bool = False,
    lm_head: bool = True,
    embeddings: bool = False,
    **config: Any,
) -> Variant:
    """A draft for the target below; `config` is added to config.json, None takes a key away."""
    if full_vocabulary:
        draft_vocab = vocab
    facts: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": hidden, "intermediate_size": feed_forward, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "num_hidden_layers": 1, "vocab_size": vocab,
        "draft_vocab_size": draft_vocab, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 4096, "rope_theta": 500000.0, **config,
    }  # fmt: skip
    if head_dim is None:
        head_dim = hidden // heads
    else:
        facts.setdefault("head_dim", head_dim)
    shapes: dict[str, tuple[int, ...]] = {
        **{f"{prefix}{norm}.weight": (hidden,) for norm in LAYER_NORMS},
        f"{prefix}self_attn.q_proj.weight": (heads * head_dim, 2 * hidden),
        f"{prefix}self_attn.k_proj.weight": (kv_heads * head_dim, 2 * hidden),
        f"{prefix}self_attn.v_proj.weight": (kv_heads * head_dim, 2 * hidden),
        f"{prefix}self_attn.o_proj.weight": (hidden, heads * head_dim),
        f"{prefix}mlp.gate_proj.weight": (feed_forward, hidden),
        f"{prefix}mlp.up_proj.weight": (feed_forward, hidden),
        f"{prefix}mlp.down_proj.weight": (hidden, feed_forward),
        "fc.weight": (hidden, 3 * hidden),
        "norm.weight": (hidden,),
        **({"lm_head.weight": (draft_vocab, hidden)} if lm_head else {}),
        **({"embed_tokens.weight": (vocab, hidden)} if embeddings else {}),
    }
    variant = Variant({key: value for key, value in facts.items() if value is not None})
    for name, shape in shapes.items():
        variant.put(name, *shape, dtype=dtype)
    if not full_vocabulary:
        ids = draft_tokens(draft_vocab)
        variant.tensors["d2t"] = ("I64", ids - np.arange(draft_vocab))
        variant.tensors["t2d"] = ("BOOL", np.isin(np.arange(vocab), ids))
    return variant


def draft_tokens(n: int = DRAFT_VOCAB) -> np.ndarray:
    """The target's tokens that the draft can propose, ascending."""
    return np.arange(n) * 4 + 3


def nested(variant: Variant, architecture: str) -> Variant:
    """The same draft in speculators' dialect: dimensions in `transformer_layer_config`."""
    own = ("draft_vocab_size", "norm_before_residual", "norm_before_fc", "target_hidden_size")
    top: dict[str, Any] = {key: variant.config.pop(key) for key in own if key in variant.config}
    top["eagle_aux_hidden_state_layer_ids"] = variant.config.pop(
        "eagle_aux_hidden_state_layer_ids", None
    )
    del variant.config["architectures"]
    return Variant(
        {
            "architectures": [architecture],
            "speculators_model_type": "eagle3",
            **top,
            "transformer_layer_config": variant.config,
        },
        variant.tensors,
    )


LLAMA3_SCALING = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
YARN_SCALING = {
    "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "beta_fast": 32.0,
    "beta_slow": 1.0,
}  # fmt: skip


def variants() -> dict[str, Variant]:
    """Every dialect and feature by name."""
    fused = draft(norm_before_fc=True, eagle_aux_hidden_state_layer_ids=[2, 6, 9])
    fused.put("input_norm.weight", 3 * HIDDEN)
    return {
        "specforge": draft(),
        "angelslim": draft(architectures=["Eagle3LlamaForCausalLM"], embeddings=True),
        "yuhuili": draft(architectures=["LlamaForCausalLM"], dtype="F16"),
        "speculators": nested(
            draft("layers.0.", norm_before_residual=True, head_dim=16), "Eagle3Speculator"
        ),
        "speculators_draft_model": nested(
            draft("layers.0.", dtype="F32", full_vocabulary=True, embeddings=True),
            "Eagle3DraftModel",
        ),
        "model_prefix": draft("model.layers.0.", target_hidden_size=HIDDEN),
        "norm_before_fc": fused,
        "all_shared": draft(full_vocabulary=True, lm_head=False),
        "llama3_rope": draft(rope_scaling=LLAMA3_SCALING, head_dim=128),
        "yarn_rope": draft(rope_scaling=YARN_SCALING),
        "odd_rows": draft(feed_forward=48),
    }


def write_target(path: Path, **changes: Any) -> Path:
    """A target's GGUF with a tokenizer and one tensor; the converter needs no more."""
    facts = {"architecture": "llama", "n_layers": N_LAYERS, "hidden": HIDDEN, "vocab": VOCAB}
    facts.update(changes)
    arch = facts["architecture"]
    fields = {
        "general.architecture": arch,
        "general.name": "Small Target",
        f"{arch}.block_count": facts["n_layers"],
        f"{arch}.embedding_length": facts["hidden"],
        f"{arch}.context_length": 4096,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [f"tok{i} \u00e9" for i in range(facts["vocab"])],
        "tokenizer.ggml.token_type": [1] * facts["vocab"],
        "tokenizer.ggml.merges": [f"a{i} b{i}" for i in range(100)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }
    path.write_bytes(ggufs.gguf(fields, n_vocab=0))
    return path


def fields(path: Path) -> dict[str, Any]:
    """A GGUF's fields, with their types."""
    return {
        key: ["/".join(kind.name for kind in field.types), field.contents()]
        for key, field in gguf.GGUFReader(path).fields.items()
        if not key.startswith("GGUF.")
    }


def tensors(path: Path) -> dict[str, Any]:
    """A GGUF's tensors: type, shape, digest of the data."""
    return {
        tensor.name: [
            tensor.tensor_type.name,
            [int(extent) for extent in tensor.shape],
            hashlib.sha256(tensor.data.tobytes()).hexdigest()[:16],
        ]
        for tensor in gguf.GGUFReader(path).tensors
    }

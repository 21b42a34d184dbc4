"""Tiny random models that have a whole vocabulary: bytes and a family's control tokens, or the real
one of a GGUF that has nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter

N_EMBD, N_FF, N_CTX = 16, 32, 4096
END = "<|the-end|>"


def write_model(path: Path, template: str, control: Sequence[str]) -> Path:
    """A model of every byte and these control tokens."""
    tokens = [*_BYTES, *control, END]
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(_BYTES) + [3] * (len(tokens) - len(_BYTES)))
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_chat_template(template)
    return _finish(writer, path, len(tokens))


def write_model_like(path: Path, template: str, vocabulary: Path) -> Path:
    """A model with the vocabulary of another."""
    writer = GGUFWriter(path, "llama")
    reader = GGUFReader(vocabulary)
    for field in reader.fields.values():
        if field.name.startswith("tokenizer.") and field.name != "tokenizer.chat_template":
            kind, *inner = field.types
            value: Any = field.contents()
            writer.add_key_value(field.name, value, kind, inner[0] if inner else None)
    assert GGUFValueType.ARRAY in reader.fields["tokenizer.ggml.tokens"].types
    writer.add_chat_template(template)
    return _finish(writer, path, len(reader.fields["tokenizer.ggml.tokens"].data))


def _byte_tokens() -> list[str]:
    """How GPT-2's vocabularies spell the bytes."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in shown]
    return [*map(chr, shown), *(chr(256 + i) for i in range(len(rest)))]


_BYTES = _byte_tokens()


def _finish(writer: GGUFWriter, path: Path, n_vocab: int) -> Path:
    random = np.random.default_rng(5)
    for key, value in {
        "block_count": 1, "context_length": N_CTX, "embedding_length": N_EMBD,
        "feed_forward_length": N_FF, "attention.head_count": 2, "attention.head_count_kv": 2,
        "rope.dimension_count": N_EMBD // 2, "vocab_size": n_vocab,
    }.items():  # fmt: skip
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    shapes = {
        "token_embd": (n_vocab, N_EMBD), "output": (n_vocab, N_EMBD),
        "blk.0.attn_q": (N_EMBD, N_EMBD), "blk.0.attn_k": (N_EMBD, N_EMBD),
        "blk.0.attn_v": (N_EMBD, N_EMBD), "blk.0.attn_output": (N_EMBD, N_EMBD),
        "blk.0.ffn_gate": (N_FF, N_EMBD), "blk.0.ffn_up": (N_FF, N_EMBD),
        "blk.0.ffn_down": (N_EMBD, N_FF),
    }  # fmt: skip
    for name, shape in shapes.items():
        values = random.standard_normal(shape).astype(np.float32)
        writer.add_tensor(f"{name}.weight", values)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(N_EMBD, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

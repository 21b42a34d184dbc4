"""Small GGUF files for tests: real headers, tensors of zeros."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

_U32, _STRING, _ARRAY, _I32, _BOOL, _F32 = 4, 8, 9, 5, 7, 6


def gguf(
    fields: Mapping[str, Any],
    *,
    n_vocab: int = 32,
    tensors: Sequence[tuple[str, tuple[int, ...]]] = (("token_embd.weight", (8, 32)),),
) -> bytes:
    """A GGUF of version 3 with F32 tensors of the given shapes."""
    everything = {**fields, "tokenizer.ggml.tokens": [f"token {i}" for i in range(n_vocab)]}
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(everything)))
    for key, value in everything.items():
        out += _string(key) + _value(value)
    offset = 0
    for name, shape in tensors:
        out += _string(name) + struct.pack("<I", len(shape))
        out += b"".join(struct.pack("<Q", extent) for extent in shape)
        out += struct.pack("<IQ", 0, offset)
        size = 4
        for extent in shape:
            size *= extent
        offset += -(-size // 32) * 32
    out += bytes(-len(out) % 32)
    return bytes(out + bytes(offset))


def target(
    arch: str = "qwen3", *, n_embd: int = 8, n_layers: int = 6, n_vocab: int = 32, **extra: Any
) -> bytes:
    return gguf(
        {
            "general.architecture": arch,
            f"{arch}.block_count": n_layers,
            f"{arch}.embedding_length": n_embd,
            f"{arch}.context_length": 4096,
            f"{arch}.feed_forward_length": 16,
            f"{arch}.attention.head_count": 2,
            f"{arch}.attention.head_count_kv": 1,
            **extra,
        },
        n_vocab=n_vocab,
    )


def draft(
    *,
    hidden: int = 8,
    layers: tuple[int, ...] = (1, 3, 4),
    n_vocab: int = 32,
    **extra: Any,
) -> bytes:
    return gguf(
        {
            "general.architecture": "eagle3",
            "eagle3.block_count": 1,
            "eagle3.embedding_length": hidden,
            "eagle3.context_length": 4096,
            "eagle3.feed_forward_length": 16,
            "eagle3.attention.head_count": 2,
            "eagle3.attention.head_count_kv": 1,
            "eagle3.target_hidden_size": hidden,
            "eagle3.target_layers": list(layers),
            **extra,
        },
        n_vocab=n_vocab,
    )


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _U32, value) if value < 1 << 32 else struct.pack("<IQ", 10, value)
    if isinstance(value, float):
        return struct.pack("<If", _F32, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_string, value))
    return struct.pack(f"<IIQ{len(value)}i", _ARRAY, _I32, len(value), *map(int, value))

"""GGUF files of a few hundred bytes: a header that says whatever a test needs, and no tensors."""

from __future__ import annotations

import struct
from pathlib import Path

_UINT32, _STRING, _ARRAY = 4, 8, 9


def write_gguf(path: Path, fields: dict[str, object]) -> Path:
    """Write a header with these fields: int, str, list of int or list of str."""
    body = b"".join(_string(key) + _value(value) for key, value in fields.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, len(fields)) + body
    path.write_bytes(header + b"\0" * (-len(header) % 32))
    return path


def write_target(path: Path, *, n_embd: int = 64, n_vocab: int = 8) -> Path:
    return write_gguf(
        path,
        {
            "general.architecture": "llama",
            "general.name": "Tiny Target",
            "general.file_type": 15,
            "llama.embedding_length": n_embd,
            "llama.block_count": 30,
            "llama.context_length": 4096,
            "tokenizer.ggml.tokens": [f"t{i}" for i in range(n_vocab)],
        },
    )


def write_draft(path: Path, *, n_embd: int = 64, n_vocab: int = 8) -> Path:
    return write_gguf(
        path,
        {
            "general.architecture": "eagle3",
            "general.name": "Tiny Draft",
            "general.file_type": 7,
            "eagle3.embedding_length": n_embd,
            "eagle3.block_count": 1,
            "eagle3.context_length": 4096,
            "eagle3.target_layers": [2, 15, 27],
            "eagle3.target_hidden_size": n_embd,
            "tokenizer.ggml.tokens": [f"t{i}" for i in range(n_vocab)],
        },
    )


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: object) -> bytes:
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    assert isinstance(value, list)
    kind = _STRING if isinstance(value[0], str) else _UINT32
    items = b"".join(_string(v) if kind == _STRING else struct.pack("<I", v) for v in value)
    return struct.pack("<IIQ", _ARRAY, kind, len(value)) + items

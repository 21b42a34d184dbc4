"""GGUF files made byte by byte: headers that say whatever a test needs, and tensors of zeros.

`tests/tiny.py` makes models that llama.cpp runs.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

Tensors = Sequence[tuple[str, tuple[int, ...]] | bytes]
"""Names and shapes of F32 tensors of zeros, or what `tensor` packs, for which there is no data."""
ONE_TENSOR: Tensors = (("token_embd.weight", (8, 32)),)
_U32, _I32, _F32, _BOOL, _STRING, _ARRAY, _U64 = 4, 5, 6, 7, 8, 9, 10


def gguf(fields: Mapping[str, Any], *, n_vocab: int = 32, tensors: Tensors = ONE_TENSOR) -> bytes:
    """A GGUF with a vocabulary and these tensors."""
    tokens = {"tokenizer.ggml.tokens": [f"token {i}" for i in range(n_vocab)]} if n_vocab else {}
    entries, offset = [], 0
    for one in tensors:
        if isinstance(one, bytes):
            entries.append(one)
            continue
        entries.append(tensor(*one, offset=offset))
        offset += -(-4 * prod(one[1]) // 32) * 32
    head = header({**fields, **tokens}, entries)
    return head + bytes(-len(head) % 32 + offset)


def header(
    fields: Mapping[str, Any],
    tensors: Sequence[bytes] = (),
    *,
    n_fields: int | None = None,
    n_tensors: int | None = None,
) -> bytes:
    """A header of fields and of what `tensor` packs; a value in bytes is taken as it is. The two
    counts may lie."""
    counts = struct.pack(
        "<IQQ",
        3,
        len(tensors) if n_tensors is None else n_tensors,
        len(fields) if n_fields is None else n_fields,
    )
    values = [one if isinstance(one, bytes) else value(one) for one in fields.values()]
    packed_fields = [packed(key) + one for key, one in zip(fields, values, strict=True)]
    return b"GGUF" + counts + b"".join([*packed_fields, *tensors])


def tensor(
    name: str,
    shape: Sequence[int],
    *,
    kind: int = 0,
    offset: int = 0,
    n_dimensions: int | None = None,
) -> bytes:
    """What a header says of a tensor; `n_dimensions` may lie."""
    count = len(shape) if n_dimensions is None else n_dimensions
    extents = struct.pack(f"<I{len(shape)}Q", count, *shape)
    return packed(name) + extents + struct.pack("<IQ", kind, offset)


def packed(text: str | bytes) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def value(given: Any) -> bytes:
    """A bool, int, float, str, or a list of texts or small numbers, with its type."""
    if isinstance(given, str):
        return struct.pack("<I", _STRING) + packed(given)
    if isinstance(given, list | tuple):
        if given and isinstance(given[0], str | bytes):
            return struct.pack("<IIQ", _ARRAY, _STRING, len(given)) + b"".join(map(packed, given))
        return struct.pack(f"<IIQ{len(given)}i", _ARRAY, _I32, len(given), *map(int, given))
    if isinstance(given, bool):
        kind, code = _BOOL, "?"
    elif isinstance(given, float):
        kind, code = _F32, "f"
    else:
        kind, code = (_U32, "I") if given < 1 << 32 else (_U64, "Q")
    return struct.pack(f"<I{code}", kind, given)


def target(
    arch: str = "qwen3",
    *,
    n_embd: int = 8,
    n_layers: int = 6,
    n_vocab: int = 32,
    tensors: Tensors = ONE_TENSOR,
    **extra: Any,
) -> bytes:
    fields = {
        **_sizes(arch, n_embd, n_layers=n_layers),
        f"{arch}.feed_forward_length": 16,
        f"{arch}.attention.head_count": 2,
        f"{arch}.attention.head_count_kv": 1,
        **extra,
    }
    return gguf(fields, n_vocab=n_vocab, tensors=tensors)


def draft(
    *, hidden: int = 8, layers: tuple[int, ...] = (1, 3, 4), n_vocab: int = 32, **extra: Any
) -> bytes:
    drafts = {"eagle3.target_hidden_size": hidden, "eagle3.target_layers": list(layers), **extra}
    return target("eagle3", n_embd=hidden, n_layers=1, n_vocab=n_vocab, **drafts)


def write_target(path: Path, *, n_embd: int = 64, n_vocab: int = 8) -> Path:
    """A file with the header of a target, which no test runs."""
    named = {"general.name": "Tiny Target", "general.file_type": 15}
    return _write(path, {**_sizes("llama", n_embd, n_layers=30), **named}, n_vocab)


def write_draft(path: Path, *, n_embd: int = 64, n_vocab: int = 8) -> Path:
    """A file with the header of that target's draft."""
    named = {
        "general.name": "Tiny Draft",
        "general.file_type": 7,
        "eagle3.target_layers": [2, 15, 27],
        "eagle3.target_hidden_size": n_embd,
    }
    return _write(path, {**_sizes("eagle3", n_embd, n_layers=1), **named}, n_vocab)


def _sizes(arch: str, n_embd: int, *, n_layers: int) -> dict[str, Any]:
    return {
        "general.architecture": arch,
        f"{arch}.embedding_length": n_embd,
        f"{arch}.block_count": n_layers,
        f"{arch}.context_length": 4096,
    }


def _write(path: Path, fields: Mapping[str, Any], n_vocab: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gguf(fields, n_vocab=n_vocab, tensors=(("token_embd.weight", (8,)),)))
    return path

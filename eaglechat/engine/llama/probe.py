"""Computes with a tiny model that has a matrix of every common type.

`workarounds.py` runs it as a process of its own, because it is here to crash.
"""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Batch, Context, Model

_WIDTH, _VOCABULARY = 256, 64
"""256 is the block of the K types, and a multiple of what AMX and the repacked types need."""
_ROWS = (1, 4, 33)
"""A plain decode, a verify, and more rows than the two tiles of AMX take at once."""
_F32, _F16, _Q4_0, _Q4_1, _Q8_0, _Q4_K, _Q5_K, _Q6_K = 0, 1, 2, 3, 8, 12, 13, 14
_BYTES = {  # per 256 weights
    _F32: 1024, _F16: 512, _Q4_0: 144, _Q4_1: 160, _Q8_0: 272, _Q4_K: 144, _Q5_K: 176, _Q6_K: 210,
}  # fmt: skip
_TENSORS = {
    "token_embd.weight": (_VOCABULARY, _F16),
    "output.weight": (_VOCABULARY, _Q6_K),
    "output_norm.weight": (0, _F32),
    "blk.0.attn_norm.weight": (0, _F32),
    "blk.0.attn_q.weight": (_WIDTH, _Q4_0),
    "blk.0.attn_k.weight": (_WIDTH, _Q4_K),
    "blk.0.attn_v.weight": (_WIDTH, _F16),
    "blk.0.attn_output.weight": (_WIDTH, _Q8_0),
    "blk.0.ffn_norm.weight": (0, _F32),
    "blk.0.ffn_gate.weight": (_WIDTH, _Q4_1),
    "blk.0.ffn_up.weight": (_WIDTH, _Q5_K),
    "blk.0.ffn_down.weight": (_WIDTH, _Q8_0),
}
"""Name -> rows of `_WIDTH` weights (0 for a vector), type."""


def main() -> None:
    backend.start_backend(backend.LOG_ERRORS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "probe.gguf")
        path.write_bytes(_model())
        with (
            Model(path) as model,
            Context(model, n_ctx=256, n_batch=64, n_threads=2) as context,
            Batch(context) as batch,
        ):
            for rows in _ROWS:
                batch.clear()
                batch.add_tokens(range(rows), 0, 0, output=True)
                if context.decode(batch) != 0:
                    raise SystemExit("llama.cpp cannot decode with the probe's model")
                context.forget(0, 0)


def _model() -> bytes:
    """A llama of one layer without a tokenizer, as a GGUF; all its weights are 0."""
    fields: dict[str, str | float] = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "none",
        "llama.vocab_size": _VOCABULARY,
        "llama.context_length": 256,
        "llama.embedding_length": _WIDTH,
        "llama.block_count": 1,
        "llama.feed_forward_length": _WIDTH,
        "llama.attention.head_count": 4,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
    }
    head, data = b"", b""
    for name, (rows, kind) in _TENSORS.items():
        shape = (_WIDTH, rows) if rows else (_WIDTH,)
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += _text(name) + sizes + struct.pack("<IQ", kind, len(data))
        data += _padded(bytes(_BYTES[kind] * max(rows, 1)))
    counts = struct.pack("<IQQ", 3, len(_TENSORS), len(fields))
    values = b"".join(_text(key) + _value(value) for key, value in fields.items())
    return _padded(b"GGUF" + counts + values + head) + data


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _value(value: str | float) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    return struct.pack("<II", 4, value) if isinstance(value, int) else struct.pack("<If", 6, value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 32)


if __name__ == "__main__":
    main()

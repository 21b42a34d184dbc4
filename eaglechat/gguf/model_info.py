"""What a file says of the model in it, as the wire has it."""

from __future__ import annotations

from eaglechat.gguf.header import GGUFHeader
from eaglechat.wire.protocol import ModelInfo


def model_info(header: GGUFHeader) -> ModelInfo:
    """Raises GGUFError for a header without one of these."""
    return ModelInfo(
        path=str(header.path),
        name=header.name,
        architecture=header.architecture,
        quantization=header.quantization,
        size_bytes=header.size_bytes,
        n_layers=header.n_layers,
        n_embd=header.n_embd,
        n_vocab=header.n_vocab,
        n_ctx_train=header.n_ctx_train,
    )

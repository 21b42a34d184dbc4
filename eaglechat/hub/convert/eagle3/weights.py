"""A draft's weights as they go into the GGUF: permuted, checked and quantised row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type

from eaglechat.hub.convert.eagle3.draft import Draft
from eaglechat.hub.convert.eagle3.mapping import FC_NORMS
from eaglechat.hub.convert.eagle3.rope import llama3_factors
from eaglechat.hub.convert.errors import ConversionError
from eaglechat.hub.convert.output.writer import OutputTensor
from eaglechat.hub.convert.source.tensors import StoredTensor

_CHUNK_VALUES = 1 << 21
"""8 MB of F32 at a time."""


def output_tensors(draft: Draft, kind: gguf.GGMLQuantizationType) -> list[OutputTensor]:
    """What to write, with its bytes still on disk: matrices as `kind`, vectors as F32.

    A matrix whose rows `kind` cannot divide into blocks stays F16, as in llama.cpp's converter.
    """
    tensors = []
    factors = llama3_factors(draft.config, draft.n_rot)
    if factors is not None:
        tensors.append(_in_memory("rope_freqs.weight", factors, Type.F32))
    for name, stored in draft.tensors.items():
        if name != "d2t" and name not in FC_NORMS:
            tensors.append(_from_disk(name, stored, _type_for(stored, kind), draft))
    if draft.d2t is not None:
        tensors.append(_in_memory("d2t", draft.d2t, Type.I64))
    return tensors


def stored_type(draft: Draft) -> str:
    """The type that keeps every matrix of the checkpoint exactly."""
    stored = {tensor.dtype for tensor in draft.tensors.values() if len(tensor.shape) > 1}
    return stored.pop().lower() if stored in ({"BF16"}, {"F16"}) else "f32"


def n_parameters(tensors: Sequence[OutputTensor]) -> int:
    return sum(prod(tensor.shape) for tensor in tensors)


def _type_for(stored: StoredTensor, kind: gguf.GGMLQuantizationType) -> gguf.GGMLQuantizationType:
    if len(stored.shape) == 1:
        return Type.F32
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    return kind if stored.shape[-1] % block == 0 else Type.F16


def _in_memory(
    name: str, values: npt.NDArray[Any], kind: gguf.GGMLQuantizationType
) -> OutputTensor:
    return OutputTensor(name, values.shape, kind, lambda: iter((values,)))


def _from_disk(
    name: str, stored: StoredTensor, kind: gguf.GGMLQuantizationType, draft: Draft
) -> OutputTensor:
    rotated = name in ("blk.0.attn_q.weight", "blk.0.attn_k.weight")
    normed = name == "fc.weight" and draft.config.fc_norm

    def chunks() -> Iterator[npt.NDArray[Any]]:
        weights = [draft.tensors[norm].read() for norm in FC_NORMS if normed]
        for rows in _read_rows(stored, multiple_of=draft.head_dim if rotated else 1):
            values = _interleave_halves(rows, draft.head_dim, draft.n_rot) if rotated else rows
            if normed:
                values = values * np.concatenate(weights)
            yield _quantise(stored.name, values, kind)

    return OutputTensor(name, stored.shape, kind, chunks)


def _read_rows(stored: StoredTensor, multiple_of: int) -> Iterator[npt.NDArray[Any]]:
    n_rows = stored.shape[0]
    step = max(_CHUNK_VALUES // prod(stored.shape[1:]) // multiple_of, 1) * multiple_of
    for start in range(0, n_rows, step):
        yield stored.read(start, min(start + step, n_rows))


def _interleave_halves(rows: npt.NDArray[Any], head_dim: int, n_rot: int) -> npt.NDArray[Any]:
    """Rows of Q or K from Hugging Face's RoPE order (halves) to llama.cpp's NORM order (pairs).

    Of each head that is its first `n_rot` rows; the rest is not rotated.
    """
    heads = rows.reshape(-1, head_dim, rows.shape[-1])
    rotated = heads[:, :n_rot].reshape(-1, 2, n_rot // 2, rows.shape[-1]).swapaxes(1, 2)
    in_pairs = rotated.reshape(-1, n_rot, rows.shape[-1])
    interleaved: npt.NDArray[Any] = np.concatenate([in_pairs, heads[:, n_rot:]], axis=1)
    return interleaved.reshape(rows.shape)


def _quantise(
    name: str, values: npt.NDArray[Any], kind: gguf.GGMLQuantizationType
) -> npt.NDArray[Any]:
    if not np.isfinite(values).all():
        raise ConversionError(
            f"{name} holds NaN or infinity, so the checkpoint is damaged; download it again"
        )
    if values.dtype == np.float64:
        values = values.astype(np.float32)
    with np.errstate(over="ignore"):
        quantised: npt.NDArray[Any] = gguf.quants.quantize(values, kind)
    if kind is Type.F16 and not np.isfinite(quantised).all():
        raise ConversionError(f"{name} holds values too large for F16; convert to bf16 instead")
    return np.ascontiguousarray(quantised)

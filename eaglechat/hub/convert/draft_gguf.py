"""What the GGUF of a converted draft holds: fields and tensors, those of llama.cpp's converter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type

from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.preflight import (
    DRAFT_ARCHITECTURE,
    DRAFT_WINDOW,
    EAGLE_4,
    NORM_OUTPUT,
    NORMS_FEATURES,
)
from eaglechat.hub.convert.config import freq_base, llama3_factors, scaling_fields
from eaglechat.hub.convert.draft import FC_NORMS, ConvertibleDraft
from eaglechat.hub.convert.tensors import StoredTensor
from eaglechat.hub.convert.writer import OutputTensor, fields_as_stored, pack
from eaglechat.hub.errors import ConversionError

_T = gguf.GGUFValueType
_CACHED_REPO = re.compile(r"^models--(?P<owner>.+?)--(?P<name>.+)$")


def packed_fields(
    draft: ConvertibleDraft, target: GGUFHeader, directory: Path, file_type: int, n_parameters: int
) -> list[bytes]:
    """All metadata fields, packed, in the order that llama.cpp's converter writes them."""
    config = draft.config
    return [
        pack("general.architecture", DRAFT_ARCHITECTURE, _T.STRING),
        pack("eagle3.target_layers", list(draft.target_layers), _T.ARRAY, _T.INT32),
        pack("eagle3.target_hidden_size", target.n_embd, _T.UINT32),
        pack("eagle3.norm_before_residual", config.norm_before_residual, _T.BOOL),
        pack("eagle3.norm_before_fc", config.norm_before_fc, _T.BOOL),
        pack("general.type", "model", _T.STRING),
        *_general_fields(directory, n_parameters),
        *_model_fields(draft),
        pack("general.file_type", file_type, _T.UINT32),
        pack("eagle3.vocab_size", target.n_vocab, _T.UINT32),
        pack("eagle3.rope.dimension_count", draft.n_rot, _T.UINT32),
        pack("general.quantization_version", gguf.GGML_QUANT_VERSION, _T.UINT32),
        *fields_as_stored(target, "tokenizer."),
    ]


def _general_fields(directory: Path, n_parameters: int) -> list[bytes]:
    """Name, licence, base model and so on, from the model card and the directory's name."""
    try:
        metadata = gguf.Metadata.load(model_path=directory, total_params=n_parameters)
        return _packed_metadata(metadata, directory, n_parameters)
    except Exception:  # gguf parses the card's free text; a draft runs without these fields
        return _packed_metadata(gguf.Metadata(), directory, n_parameters)


def _packed_metadata(metadata: gguf.Metadata, directory: Path, n_parameters: int) -> list[bytes]:
    cached = _CACHED_REPO.match(directory.parent.parent.name)
    if cached:
        # In the Hugging Face cache the directory's name is a commit hash: gguf would parse that.
        metadata.name = cached["name"].replace("-", " ")
        metadata.organization, metadata.basename = cached["owner"], None
        metadata.finetune = metadata.version = None
    metadata.name = metadata.name or directory.name
    metadata.size_label = metadata.size_label or gguf.size_label(n_parameters, n_parameters, 0, 0)
    collector = gguf.GGUFWriter(None, DRAFT_ARCHITECTURE)
    metadata.set_gguf_meta_model(collector)
    return [
        pack(key, field.value, field.type, _T.STRING)
        for key, field in collector.kv_data[0].items()
        if key != "general.architecture"
    ]


def _model_fields(draft: ConvertibleDraft) -> Iterable[bytes]:
    config, rope = draft.config, draft.config.rope
    yield pack("eagle3.block_count", 1, _T.UINT32)
    yield pack("eagle3.context_length", config.max_position_embeddings, _T.UINT32)
    yield pack("eagle3.embedding_length", config.hidden_size, _T.UINT32)
    yield pack("eagle3.feed_forward_length", draft.feed_forward, _T.UINT32)
    yield pack("eagle3.attention.head_count", config.num_attention_heads, _T.UINT32)
    yield pack("eagle3.attention.head_count_kv", config.n_kv_heads, _T.UINT32)
    types = {str: _T.STRING, int: _T.UINT32, float: _T.FLOAT32}
    for key, value in scaling_fields(config).items():
        yield pack(f"eagle3.rope.scaling.{key}", value, types[type(value)])
    if rope.mrope_section:
        padded = (*rope.mrope_section, 0, 0, 0, 0)[:4]
        yield pack("eagle3.rope.dimension_sections", padded, _T.ARRAY, _T.INT32)
    yield pack("eagle3.rope.freq_base", freq_base(config, draft.n_rot), _T.FLOAT32)
    yield pack("eagle3.attention.layer_norm_rms_epsilon", config.rms_norm_eps, _T.FLOAT32)
    yield pack("eagle3.attention.key_length", draft.head_dim, _T.UINT32)
    yield pack("eagle3.attention.value_length", draft.head_dim, _T.UINT32)
    if config.kind == "eagle4":
        yield pack(EAGLE_4, True, _T.BOOL)
    if config.fc_norm:
        yield pack(NORMS_FEATURES, True, _T.BOOL)
    if config.norm_output:
        yield pack(NORM_OUTPUT, True, _T.BOOL)
    if config.window is not None:
        yield pack(DRAFT_WINDOW, config.window, _T.UINT32)


CHUNK_VALUES = 1 << 21
"""Values converted at a time: 8 MB of F32."""


def output_tensors(draft: ConvertibleDraft, kind: Type) -> list[OutputTensor]:
    """The tensors to write; those of the checkpoint are read while they are written."""
    tensors = []
    factors = llama3_factors(draft.config, draft.n_rot)
    if factors is not None:
        tensors.append(_in_memory("rope_freqs.weight", factors, Type.F32))
    for name, stored in draft.tensors.items():
        if name != "d2t" and name not in FC_NORMS:
            tensors.append(_from_disk(name, stored, type_for(stored.shape, kind), draft))
    if draft.d2t is not None:
        tensors.append(_in_memory("d2t", draft.d2t, Type.I64))
    return tensors


def exact_type(draft: ConvertibleDraft) -> str:
    """The type that stores every matrix of the checkpoint without loss."""
    stored = {tensor.dtype for tensor in draft.tensors.values() if len(tensor.shape) > 1}
    return stored.pop().lower() if stored in ({"BF16"}, {"F16"}) else "f32"


def type_for(shape: Sequence[int], kind: Type) -> Type:
    """The type to store a tensor as: F32 for a vector, `kind` for a matrix if its rows are whole
    blocks of it, else F16, as in llama.cpp's converter."""
    if len(shape) == 1:
        return Type.F32
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    return kind if shape[-1] % block == 0 else Type.F16


def _in_memory(name: str, values: npt.NDArray[Any], kind: Type) -> OutputTensor:
    return OutputTensor(name, values.shape, kind, lambda: iter((values,)))


def _from_disk(
    name: str, stored: StoredTensor, kind: Type, draft: ConvertibleDraft
) -> OutputTensor:
    rotated = name in ("blk.0.attn_q.weight", "blk.0.attn_k.weight")
    normed = name == "fc.weight" and draft.config.fc_norm

    def chunks() -> Iterator[npt.NDArray[Any]]:
        weights = [draft.tensors[norm].read() for norm in FC_NORMS if normed]
        # Of Q and K, whole heads are read.
        whole = draft.head_dim if rotated else 1
        n_rows = stored.shape[0]
        step = max(CHUNK_VALUES // prod(stored.shape[1:]) // whole, 1) * whole
        for start in range(0, n_rows, step):
            rows = stored.read(start, min(start + step, n_rows))
            values = _interleave_halves(rows, draft.head_dim, draft.n_rot) if rotated else rows
            if normed:
                values = values * np.concatenate(weights)
            yield _quantise(stored.name, values, kind)

    return OutputTensor(name, stored.shape, kind, chunks)


def _interleave_halves(rows: npt.NDArray[Any], head_dim: int, n_rot: int) -> npt.NDArray[Any]:
    """Rows of Q or K, reordered from Hugging Face's RoPE layout (two halves per head) to that of
    llama.cpp (pairs). Only the first `n_rot` rows of each head are rotated; the rest stays.
    """
    heads = rows.reshape(-1, head_dim, rows.shape[-1])
    rotated = heads[:, :n_rot].reshape(-1, 2, n_rot // 2, rows.shape[-1]).swapaxes(1, 2)
    in_pairs = rotated.reshape(-1, n_rot, rows.shape[-1])
    interleaved: npt.NDArray[Any] = np.concatenate([in_pairs, heads[:, n_rot:]], axis=1)
    return interleaved.reshape(rows.shape)


def _quantise(name: str, values: npt.NDArray[Any], kind: Type) -> npt.NDArray[Any]:
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

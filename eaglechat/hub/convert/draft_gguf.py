"""What the GGUF of a converted draft holds: fields and tensors, those of llama.cpp's converter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
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
from eaglechat.hub.convert.checkpoint import StoredTensor
from eaglechat.hub.convert.config import freq_base, llama3_factors, scaling_fields
from eaglechat.hub.convert.draft import FC_NORMS, ConvertibleDraft
from eaglechat.hub.convert.writer import OutputTensor
from eaglechat.hub.errors import ConversionError

_T = gguf.GGUFValueType
_CACHED_REPO = re.compile(r"^models--(?P<owner>.+?)--(?P<name>.+)$")


def fields_of(
    draft: ConvertibleDraft, target: GGUFHeader, directory: Path, file_type: int, n_parameters: int
) -> gguf.GGUFWriter:
    """A writer with all fields but those of the tokenizer."""
    config, rope = draft.config, draft.config.rope
    writer = gguf.GGUFWriter(None, DRAFT_ARCHITECTURE)
    writer.add_array("eagle3.target_layers", draft.target_layers)
    writer.add_uint32("eagle3.target_hidden_size", target.n_embd)
    writer.add_bool("eagle3.norm_before_residual", config.norm_before_residual)
    writer.add_bool("eagle3.norm_before_fc", config.norm_before_fc)
    writer.add_type("model")
    _add_metadata(writer, directory, n_parameters)
    writer.add_block_count(1)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(draft.feed_forward)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.n_kv_heads)
    kinds = {str: _T.STRING, int: _T.UINT32, float: _T.FLOAT32}
    for key, value in scaling_fields(config).items():
        writer.add_key_value(f"eagle3.rope.scaling.{key}", value, kinds[type(value)])
    if rope.mrope_section:
        writer.add_rope_dimension_sections((*rope.mrope_section, 0, 0, 0, 0)[:4])
    writer.add_rope_freq_base(freq_base(config, draft.n_rot))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(draft.head_dim)
    writer.add_value_length(draft.head_dim)
    writer.add_file_type(file_type)
    writer.add_vocab_size(target.n_vocab)
    writer.add_rope_dimension_count(draft.n_rot)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for key, is_so in (
        (EAGLE_4, config.kind == "eagle4"),
        (NORMS_FEATURES, config.fc_norm),
        (NORM_OUTPUT, config.norm_output),
    ):
        if is_so:
            writer.add_bool(key, True)
    if config.window is not None:
        writer.add_uint32(DRAFT_WINDOW, config.window)
    return writer


def _add_metadata(writer: gguf.GGUFWriter, directory: Path, n_parameters: int) -> None:
    """Name, licence, base model and so on, from the model card and the directory's name."""
    try:
        metadata = gguf.Metadata.load(model_path=directory, total_params=n_parameters)
    except Exception:  # gguf parses the card's free text; a draft runs without these fields
        metadata = gguf.Metadata()
    cached = _CACHED_REPO.match(directory.parent.parent.name)
    if cached:
        # In the Hugging Face cache the directory's name is a commit hash: gguf would parse that.
        metadata.name = cached["name"].replace("-", " ")
        metadata.organization, metadata.basename = cached["owner"], None
        metadata.finetune = metadata.version = None
    metadata.name = metadata.name or directory.name
    metadata.size_label = metadata.size_label or gguf.size_label(n_parameters, n_parameters, 0, 0)
    card = gguf.GGUFWriter(None, DRAFT_ARCHITECTURE)
    with suppress(Exception):  # what the card says may be of any type
        metadata.set_gguf_meta_model(card)
    for key, field in card.kv_data[0].items():
        texts = field.value if isinstance(field.value, list) else [field.value]
        # Texts that UTF-8 can hold.
        are_texts = texts and all(
            isinstance(one, str) and one == one.encode("utf-8", "replace").decode() for one in texts
        )
        if field.type is _T.UINT32 or are_texts:
            writer.kv_data[0][key] = field


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

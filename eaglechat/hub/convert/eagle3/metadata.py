"""The fields of a draft's GGUF, in the order llama.cpp's converter writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import gguf

from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.preflight import (
    DRAFT_ARCHITECTURE,
    DRAFT_WINDOW,
    NORM_OUTPUT,
    NORMS_FEATURES,
)
from eaglechat.hub.convert.eagle3.draft import Draft
from eaglechat.hub.convert.eagle3.rope import scaling_fields
from eaglechat.hub.convert.eagle3.target import fields_as_stored
from eaglechat.hub.convert.output.fields import pack

_T = gguf.GGUFValueType
_CACHED_REPO = re.compile(r"^models--(?P<owner>.+?)--(?P<name>.+)$")


def packed_fields(
    draft: Draft, target: GGUFHeader, directory: Path, file_type: int, n_parameters: int
) -> list[bytes]:
    """Every field of the GGUF, packed."""
    fields = [
        pack("general.architecture", DRAFT_ARCHITECTURE, _T.STRING),
        *_target_fields(draft, target),
        pack("general.type", "model", _T.STRING),
        *_general_fields(directory, n_parameters),
        *_model_fields(draft),
        pack("general.file_type", file_type, _T.UINT32),
        pack("eagle3.vocab_size", target.n_vocab, _T.UINT32),
        pack("eagle3.rope.dimension_count", draft.n_rot, _T.UINT32),
        pack("general.quantization_version", gguf.GGML_QUANT_VERSION, _T.UINT32),
    ]
    return fields + fields_as_stored(target, "tokenizer.")


def _target_fields(draft: Draft, target: GGUFHeader) -> Iterable[bytes]:
    layers = list(draft.target_layers)
    yield pack("eagle3.target_layers", layers, _T.ARRAY, _T.INT32)
    yield pack("eagle3.target_hidden_size", target.n_embd, _T.UINT32)
    yield pack("eagle3.norm_before_residual", draft.config.norm_before_residual, _T.BOOL)
    yield pack("eagle3.norm_before_fc", draft.config.norm_before_fc, _T.BOOL)


def _general_fields(directory: Path, n_parameters: int) -> list[bytes]:
    """Name, licence, base model and the like, from the model card and the directory's name."""
    try:
        metadata = gguf.Metadata.load(model_path=directory, total_params=n_parameters)
        return _packed_metadata(metadata, directory, n_parameters)
    except Exception:  # the card is its author's free text; without it the draft runs as well
        return _packed_metadata(gguf.Metadata(), directory, n_parameters)


def _packed_metadata(metadata: gguf.Metadata, directory: Path, n_parameters: int) -> list[bytes]:
    cached = _CACHED_REPO.match(directory.parent.parent.name)
    if cached:
        # The Hub's cache names the directory by a commit, from which gguf reads nonsense.
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


def _model_fields(draft: Draft) -> Iterable[bytes]:
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
    yield pack("eagle3.rope.freq_base", rope.rope_theta, _T.FLOAT32)
    yield pack("eagle3.attention.layer_norm_rms_epsilon", config.rms_norm_eps, _T.FLOAT32)
    yield pack("eagle3.attention.key_length", draft.head_dim, _T.UINT32)
    yield pack("eagle3.attention.value_length", draft.head_dim, _T.UINT32)
    if config.fc_norm:
        yield pack(NORMS_FEATURES, True, _T.BOOL)
    if config.norm_output:
        yield pack(NORM_OUTPUT, True, _T.BOOL)
    if config.window is not None:
        yield pack(DRAFT_WINDOW, config.window, _T.UINT32)

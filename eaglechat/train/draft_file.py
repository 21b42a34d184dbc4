"""Reads and writes drafts as GGUF: weights, dimensions, and how they were trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Kind
from gguf import LlamaFileType as FileType

from eaglechat.engine.llama.bindings import Floats
from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.pairing import check_pair
from eaglechat.gguf.preflight import (
    DRAFT_ARCHITECTURE,
    DRAFT_WINDOW,
    EAGLE_4,
    EXTRACT_LAYERS,
    NORM_OUTPUT,
    NORMS_FEATURES,
    PreflightError,
)
from eaglechat.hub.convert.draft_gguf import type_for
from eaglechat.hub.convert.target import read_rows
from eaglechat.hub.convert.writer import (
    TYPES,
    OnProgress,
    OutputTensor,
    fields_as_stored,
    write_draft,
)
from eaglechat.train import rope
from eaglechat.train.network import trained_shapes
from eaglechat.train.settings import TrainingError
from eaglechat.train.target import EMBEDDINGS, HEAD, DraftShape, VocabularyMatrices

_D2T = "d2t"
_OPTIONAL = {HEAD, EMBEDDINGS, rope.FACTORS, _D2T}
_KEPT = (rope.FIELDS, NORMS_FEATURES, NORM_OUTPUT, DRAFT_WINDOW, EAGLE_4)
"""Keys, or their beginnings, that are copied from the draft that training began with."""
_BASE_MODEL = ("name", "organization", "repo_url")


@dataclass(frozen=True)
class TrainableDraft:
    """A draft in memory."""

    shape: DraftShape
    layers: tuple[int, ...]
    """The layers of the target whose inputs it reads."""
    d2t: npt.NDArray[np.int64]
    """[draft vocabulary]: the target's id of each of its tokens, ascending."""
    weights: Mapping[str, Floats]
    """By GGUF name, in numpy's order: [outputs, inputs]."""
    begun_as: GGUFHeader | None = None
    """The draft that training began with. Its RoPE and its own embeddings are not trained, but
    copied."""

    @property
    def own_embeddings(self) -> VocabularyMatrices | None:
        """None if the draft uses its target's."""
        stored = self.begun_as.tensors if self.begun_as else ()
        if self.begun_as is None or EMBEDDINGS not in {tensor.name for tensor in stored}:
            return None
        return VocabularyMatrices(self.begun_as)


def read_draft(
    path: Path, target: GGUFHeader, matrices: VocabularyMatrices, longest: int
) -> TrainableDraft:
    """A draft to continue, with samples of at most `longest` tokens.

    Raises TrainingError if training cannot continue it, ConversionError if it cannot be read.
    """
    try:
        _, header = check_pair(target.path, path)
    except PreflightError as error:
        raise TrainingError(str(error)) from error
    assert header is not None
    window = header.number(DRAFT_WINDOW)
    if 0 < window < longest:
        raise TrainingError(
            f"training cannot start from {path.name}: it looks back {window} tokens "
            f"({DRAFT_WINDOW}), but samples are up to {longest} tokens long; give "
            f"--longest {window}"
        )
    stored = {tensor.name: tensor for tensor in header.tensors}

    def read(name: str) -> Floats:
        return read_rows(path, header.data_start, stored[name])

    factors = read(rope.FACTORS) if rope.FACTORS in stored else None
    shape = _shape(header, target, factors)
    n_draft_vocab = stored[_D2T].shape[0] if _D2T in stored else target.n_vocab
    trained = trained_shapes(shape, n_draft_vocab)
    _check_tensors(header, {
        **trained,
        EMBEDDINGS: (target.n_vocab, shape.n_embd),
        rope.FACTORS: (shape.rope.n_rot // 2,),
        _D2T: (n_draft_vocab,),
    })  # fmt: skip
    if _D2T in stored:
        place = header.data_start + stored[_D2T].offset
        d2t = np.fromfile(path, "<i8", n_draft_vocab, offset=place)
    else:
        d2t = np.arange(target.n_vocab, dtype=np.int64)
    weights = {name: read(name) if name in stored else matrices.head(d2t) for name in trained}
    layers = tuple(header.numbers("eagle3.target_layers") or ())
    return TrainableDraft(shape, layers, d2t, weights, begun_as=header)


def _shape(draft: GGUFHeader, target: GGUFHeader, factors: Floats | None) -> DraftShape:
    n_heads = draft.number("eagle3.attention.head_count")
    head_dim = draft.number("eagle3.attention.key_length") or draft.n_embd // n_heads
    return DraftShape(
        n_embd=draft.n_embd,
        n_features=EXTRACT_LAYERS * target.n_embd,
        n_heads=n_heads,
        n_kv_heads=draft.number("eagle3.attention.head_count_kv") or n_heads,
        head_dim=head_dim,
        feed_forward=draft.number("eagle3.feed_forward_length"),
        rms_eps=float(draft.get("eagle3.attention.layer_norm_rms_epsilon")),
        rope=rope.read_rope(draft, head_dim, factors),
        n_ctx=draft.n_ctx_train,
        norm_before_fc=bool(draft.get("eagle3.norm_before_fc")),
        fc_norm=bool(draft.get(NORMS_FEATURES)),
        norm_before_residual=bool(draft.get("eagle3.norm_before_residual")),
        norm_output=bool(draft.get(NORM_OUTPUT)),
    )


def _check_tensors(draft: GGUFHeader, known: Mapping[str, tuple[int, ...]]) -> None:
    stored = {tensor.name: tensor.shape[::-1] for tensor in draft.tensors}
    for name in known.keys() - stored.keys() - _OPTIONAL:
        raise TrainingError(f"training cannot start from {draft.path.name}: it lacks {name}")
    for name, shape in stored.items():
        if known.get(name) != shape:
            raise TrainingError(
                f"training cannot start from {draft.path.name}: the draft that training computes "
                f"has no {name} of the shape {list(shape)}"
            )


def save_draft(
    draft: TrainableDraft,
    target: GGUFHeader,
    out: Path,
    *,
    about: Mapping[str, str | int | float],
    type: str,
    head_type: str | None = None,
    progress: OnProgress = lambda done, total: None,
) -> None:
    """Write a draft as a GGUF of one of the converter's types; `head_type` is the output head's, if
    that is another. `about` are fields that say how the draft was trained. Raises
    TrainingError, ConversionError, OSError."""
    for name, values in draft.weights.items():
        if not np.isfinite(values).all():
            raise TrainingError(
                f"training failed: {name} holds NaN or infinity; train with a lower --rate"
            )

    kind, file_type = TYPES[type]
    head_kind, _ = TYPES[head_type or type]
    tensors = list(_tensors(draft, kind, head_kind))
    n_parameters = sum(prod(tensor.shape) for tensor in tensors)
    fields = _fields(draft, target, about, file_type, n_parameters)
    copied = fields_as_stored(target, "tokenizer.")
    if draft.begun_as is not None:
        for key in _KEPT:
            copied += fields_as_stored(draft.begun_as, key)
    write_draft(out, fields, tensors, progress, copied=copied)


def _tensors(draft: TrainableDraft, kind: Type, head_kind: Type) -> Iterator[OutputTensor]:
    for name, values in draft.weights.items():
        yield _tensor(name, values.shape, head_kind if name == HEAD else kind, values)
    # Copied from the draft that training began with:
    begun_as = draft.begun_as
    stored = {tensor.name: tensor for tensor in begun_as.tensors} if begun_as else {}
    if begun_as and rope.FACTORS in stored:
        factors = read_rows(begun_as.path, begun_as.data_start, stored[rope.FACTORS])
        yield _tensor(rope.FACTORS, factors.shape, kind, factors)
    if own := draft.own_embeddings:
        yield _tensor(EMBEDDINGS, stored[EMBEDDINGS].shape[::-1], kind, own)
    yield OutputTensor(_D2T, draft.d2t.shape, Type.I64, lambda: iter((draft.d2t,)))


def _tensor(
    name: str, shape: Sequence[int], kind: Type, values: Floats | VocabularyMatrices
) -> OutputTensor:
    """A tensor that is quantised while it is written: `values`, or the embeddings of a model."""
    stored_as = type_for(shape, kind)

    def chunks() -> Iterator[npt.NDArray[np.generic]]:
        for rows in (values,) if isinstance(values, np.ndarray) else values.embeddings():
            yield np.ascontiguousarray(gguf.quants.quantize(rows, stored_as))

    return OutputTensor(name, tuple(shape), stored_as, chunks)


def _fields(
    draft: TrainableDraft,
    target: GGUFHeader,
    about: Mapping[str, str | int | float],
    file_type: FileType,
    n_parameters: int,
) -> gguf.GGUFWriter:
    """A writer with all fields that are not copied from another file."""
    shape = draft.shape
    writer = gguf.GGUFWriter(None, DRAFT_ARCHITECTURE)
    writer.add_array("eagle3.target_layers", draft.layers)
    writer.add_uint32("eagle3.target_hidden_size", target.n_embd)
    writer.add_bool("eagle3.norm_before_residual", shape.norm_before_residual)
    writer.add_bool("eagle3.norm_before_fc", shape.norm_before_fc)
    writer.add_type("model")
    writer.add_size_label(gguf.size_label(n_parameters, n_parameters, 0, 0))
    if licence := target.get("general.license"):
        writer.add_license(str(licence))
    writer.add_base_model_count(1)
    for key in _BASE_MODEL:
        value = target.name if key == "name" else target.get(f"general.{key}")
        writer.add_string(f"general.base_model.0.{key}", str(value or ""))
    writer.add_block_count(1)
    writer.add_context_length(shape.n_ctx)
    writer.add_embedding_length(shape.n_embd)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.n_heads)
    writer.add_head_count_kv(shape.n_kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_vocab_size(target.n_vocab)
    if draft.begun_as is None:
        writer.add_rope_dimension_count(shape.rope.n_rot)
        writer.add_rope_freq_base(shape.rope.base)
    writer.add_layer_norm_rms_eps(shape.rms_eps)
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    kinds = {str: Kind.STRING, int: Kind.UINT64, float: Kind.FLOAT32}
    for key, value in about.items():
        writer.add_key_value(key, value, kinds[type(value)])
    return writer

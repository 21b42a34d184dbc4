"""A trained draft from and to GGUF: weights, dimensions, and what is said about its making."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type
from gguf import LlamaFileType as FileType

from eaglechat.engine.llama.bindings import Floats
from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.preflight import DRAFT_ARCHITECTURE, PreflightError, check_pair
from eaglechat.hub.convert.eagle3.target import tokenizer_fields
from eaglechat.hub.convert.errors import ConversionError
from eaglechat.hub.convert.output.fields import pack
from eaglechat.hub.convert.output.files import DIRECT_TYPES, Progress, write_draft
from eaglechat.hub.convert.output.writer import OutputTensor
from eaglechat.train.errors import TrainingError
from eaglechat.train.model.target import HEAD, Shape, TargetMatrices, read_matrix

_T = gguf.GGUFValueType
_UNQUANTISED = "bf16"
"""What llama.cpp makes its mixtures from."""
HEAD_TYPES = {
    **{name: kind for name, (kind, _) in DIRECT_TYPES.items()},
    "q5_1": Type.Q5_1,
    "q5_0": Type.Q5_0,
    "q4_1": Type.Q4_1,
    "q4_0": Type.Q4_0,
}
"""What gguf quantises a matrix to by itself, in rows of 32."""
_BASE_MODEL = ("name", "organization", "repo_url")


@dataclass(frozen=True)
class Draft:
    """A draft in memory."""

    shape: Shape
    layers: tuple[int, ...]
    """The target's layers whose inputs it reads."""
    d2t: npt.NDArray[np.int64]
    """[draft vocabulary]: the target's token of each of its own, ascending."""
    weights: Mapping[str, Floats]
    """By GGUF name, as numpy has them: [outputs, inputs]."""


@dataclass(frozen=True)
class Making:
    """What the file says of the draft and how it was made."""

    name: str
    data: str
    """One sentence."""
    n_samples: int
    n_tokens_seen: int
    seconds: float
    unrolled_steps: int
    predicted: tuple[float, ...]
    """Acceptance at each position on held-out chats, as training predicts it."""


def read_draft(path: Path, target: GGUFHeader, matrices: TargetMatrices) -> Draft:
    """A draft to go on from. Raises TrainingError for one that training cannot continue."""
    try:
        _, header = check_pair(target.path, path)
    except PreflightError as error:
        raise TrainingError(str(error)) from error
    assert header is not None
    stored = {tensor.name: tensor for tensor in header.tensors}
    for name, reason in (
        ("token_embd.weight", "brings embeddings of its own"),
        ("enc.output_norm.weight", "normalises its features"),
        ("rope_freqs.weight", "scales RoPE"),
    ):
        if name in stored:
            raise TrainingError(f"training cannot start from {path.name}: it {reason}")
    if header.get("eagle3.norm_before_residual") or header.get("eagle3.rope.scaling.type"):
        raise TrainingError(
            f"training cannot start from {path.name}: its residual or RoPE is of another kind"
        )
    if header.n_embd != target.n_embd:
        raise TrainingError(
            f"training cannot start from {path.name}: its hidden size is {header.n_embd}, "
            f"that of {target.path.name} is {target.n_embd}"
        )
    weights = {
        name: read_matrix(path, header.data_start, tensor)
        for name, tensor in stored.items()
        if name != "d2t"
    }
    if "d2t" in stored:
        place = header.data_start + stored["d2t"].offset
        d2t = np.fromfile(path, "<i8", stored["d2t"].shape[0], offset=place)
    else:
        d2t = np.arange(target.n_vocab, dtype=np.int64)
    if HEAD not in weights:
        weights[HEAD] = matrices.head(d2t)
    return Draft(_shape(header), tuple(header.numbers("eagle3.target_layers") or ()), d2t, weights)


def _shape(draft: GGUFHeader) -> Shape:
    n_heads = draft.number("eagle3.attention.head_count")
    return Shape(
        n_embd=draft.n_embd,
        n_heads=n_heads,
        n_kv_heads=draft.number("eagle3.attention.head_count_kv") or n_heads,
        head_dim=draft.number("eagle3.attention.key_length") or draft.n_embd // n_heads,
        feed_forward=draft.number("eagle3.feed_forward_length"),
        rms_eps=float(draft.get("eagle3.attention.layer_norm_rms_epsilon")),
        rope_base=float(draft.get("eagle3.rope.freq_base") or 10000.0),
        n_ctx=draft.n_ctx_train,
    )


def save_draft(
    draft: Draft,
    target: GGUFHeader,
    making: Making,
    out: Path,
    *,
    type: str,
    head_type: str | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Write a draft as a GGUF of one of `convert`'s types; its output head as `head_type`, one of
    HEAD_TYPES, where that is given: only where llama.cpp does not choose a mixture itself.

    Raises TrainingError, OSError.
    """
    for name, values in draft.weights.items():
        if not np.isfinite(values).all():
            raise TrainingError(
                f"training failed: {name} holds NaN or infinity; train with a lower --rate"
            )

    def contents(kind: Type, file_type: FileType) -> tuple[list[bytes], list[OutputTensor]]:
        fields = [*_fields(draft, target, making, file_type), *tokenizer_fields(target)]
        return fields, list(_tensors(draft, kind, HEAD_TYPES[head_type] if head_type else kind))

    try:
        write_draft(out, type, _UNQUANTISED, contents, progress)
    except ConversionError as error:
        raise TrainingError(str(error)) from error


def _tensors(draft: Draft, kind: Type, head_kind: Type) -> Iterator[OutputTensor]:
    for name, values in draft.weights.items():
        wanted = head_kind if name == HEAD else kind
        stored_as = Type.F32 if values.ndim == 1 else _fitting(wanted, values.shape[-1])
        yield OutputTensor(name, values.shape, stored_as, _quantised(values, stored_as))
    yield OutputTensor("d2t", draft.d2t.shape, Type.I64, lambda: iter((draft.d2t,)))


def _fitting(kind: Type, row: int) -> Type:
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    return kind if row % block == 0 else Type.F16


def _quantised(values: Floats, kind: Type) -> Callable[[], Iterator[npt.NDArray[np.generic]]]:
    return lambda: iter((np.ascontiguousarray(gguf.quants.quantize(values, kind)),))


def _fields(
    draft: Draft, target: GGUFHeader, making: Making, file_type: FileType
) -> Iterable[bytes]:
    shape = draft.shape
    n_parameters = sum(values.size for values in draft.weights.values())
    yield pack("general.architecture", DRAFT_ARCHITECTURE, _T.STRING)
    yield pack("eagle3.target_layers", draft.layers, _T.ARRAY, _T.INT32)
    yield pack("eagle3.target_hidden_size", target.n_embd, _T.UINT32)
    yield pack("eagle3.norm_before_residual", False, _T.BOOL)
    yield pack("eagle3.norm_before_fc", False, _T.BOOL)
    yield pack("general.type", "model", _T.STRING)
    yield pack("general.name", making.name, _T.STRING)
    yield pack("general.size_label", gguf.size_label(n_parameters, n_parameters, 0, 0), _T.STRING)
    if licence := target.get("general.license"):
        yield pack("general.license", str(licence), _T.STRING)
    yield pack("general.base_model.count", 1, _T.UINT32)
    for key in _BASE_MODEL:
        value = target.name if key == "name" else target.get(f"general.{key}")
        if value:
            yield pack(f"general.base_model.0.{key}", str(value), _T.STRING)
    for key, number in {
        "block_count": 1,
        "context_length": shape.n_ctx,
        "embedding_length": shape.n_embd,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.n_heads,
        "attention.head_count_kv": shape.n_kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "rope.dimension_count": shape.head_dim,
        "vocab_size": target.n_vocab,
    }.items():
        yield pack(f"eagle3.{key}", number, _T.UINT32)
    yield pack("eagle3.rope.freq_base", shape.rope_base, _T.FLOAT32)
    yield pack("eagle3.attention.layer_norm_rms_epsilon", shape.rms_eps, _T.FLOAT32)
    yield pack("general.file_type", file_type, _T.UINT32)
    yield pack("general.quantization_version", gguf.GGML_QUANT_VERSION, _T.UINT32)
    yield pack("eaglechat.training.data", making.data, _T.STRING)
    yield pack("eaglechat.training.samples", making.n_samples, _T.UINT64)
    yield pack("eaglechat.training.tokens_seen", making.n_tokens_seen, _T.UINT64)
    yield pack("eaglechat.training.seconds", making.seconds, _T.FLOAT32)
    yield pack("eaglechat.training.unrolled_steps", making.unrolled_steps, _T.UINT32)
    yield pack("eaglechat.training.acceptance", making.predicted, _T.ARRAY, _T.FLOAT32)

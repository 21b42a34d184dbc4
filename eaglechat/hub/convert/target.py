"""The target of a draft that is converted: whether a draft can read it, rows of its matrices, and
the embeddings that a draft copied from it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from eaglechat.gguf.header import GGUFError, GGUFHeader, TensorInfo, read_header, read_shards
from eaglechat.gguf.preflight import DRAFT_ARCHITECTURE, TARGET_ARCHITECTURES
from eaglechat.hub.convert.checkpoint import StoredTensor
from eaglechat.hub.convert.draft import ConvertibleDraft
from eaglechat.hub.errors import ConversionError
from eaglechat.hub.units import format_bytes

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
EMBEDDINGS = "token_embd.weight"

_SAMPLED_ROWS = 512
_FLOATS = ("F32", "F16", "BF16")
_BF16_STEP = 2**-8
_BLOCKS = {
    "Q4_0": 32, "Q4_1": 32, "Q5_0": 32, "Q5_1": 32, "Q8_0": 32, "Q2_K": 16, "Q3_K": 16,
    "Q4_K": 32, "Q5_K": 32, "Q6_K": 16,
}  # fmt: skip
"""Quantised types whose blocks hold evenly spaced values, and the number of values per block."""
_LEAST_COPIED = 0.985
"""Share of values equal within the target's rounding. Measured on targets quantised by llama.cpp:
copies have 0.993 (Q3_K) to 1.0; embeddings that training moved by 2% of their spread have 0.97
(Q4_K), 0.78 (Q6_K) or 0.35 (Q8_0). A Q4 type cannot show smaller changes, and they do not matter:
its own rounding is 7%."""


def read_target(path: Path) -> GGUFHeader:
    """The header of a target. Raises ConversionError if no EAGLE-3 draft can read its layers."""
    try:
        target = read_header(path)
    except FileNotFoundError:
        raise ConversionError(f"the target {path} does not exist") from None
    except (OSError, GGUFError) as error:
        raise ConversionError(f"the target cannot be read: {error}") from error
    check_target(target)
    return target


def check_target(target: GGUFHeader) -> None:
    """Raise ConversionError if no EAGLE-3 draft can read this target's layers."""
    path = target.path
    if target.architecture == DRAFT_ARCHITECTURE:
        raise ConversionError(f"the target {path} is itself an EAGLE-3 draft")
    if not target.architecture:
        raise ConversionError(
            f"the target {path} names no architecture; of a split model, give the first file"
        )
    if target.architecture not in TARGET_ARCHITECTURES:
        raise ConversionError(
            f"the target {path.name} has the architecture {target.architecture}, whose llama.cpp "
            "graph does not export layer inputs, so no EAGLE-3 draft can read it"
        )
    if not target.n_vocab or not target.n_layers or not target.n_embd:
        raise ConversionError(
            f"the target {path.name} lacks its tokenizer, layer count or hidden size"
        )


def read_rows(path: Path, data_start: int, tensor: TensorInfo, rows: Rows | None = None) -> Floats:
    """The given rows of a tensor (all if None), dequantised: [rows, row length].

    A one-dimensional tensor is returned as [length]. `data_start` is the file's offset of its data.
    Raises ConversionError if the type cannot be read or the file ends early, OSError.
    """
    try:
        kind = gguf.GGMLQuantizationType[tensor.type]
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    except KeyError:
        raise _unreadable(path, tensor) from None
    row_bytes = tensor.shape[0] // block * block_bytes
    wanted = np.arange(math.prod(tensor.shape[1:])) if rows is None else rows
    packed = np.empty((len(wanted), row_bytes), np.uint8)
    with path.open("rb") as file:
        done = 0
        # Consecutive rows are read in one call.
        for run in np.split(wanted, np.flatnonzero(np.diff(wanted) != 1) + 1):
            file.seek(data_start + tensor.offset + int(run[0]) * row_bytes)
            if file.readinto(packed[done : done + len(run)].data) < len(run) * row_bytes:
                raise ConversionError(f"{path} is cut short inside {tensor.name}")
            done += len(run)
    # gguf takes F32 and F16 as numbers, every other type as bytes.
    numbers = {"F32": np.float32, "F16": np.float16}.get(tensor.type)
    try:
        values = gguf.quants.dequantize(packed.view(numbers) if numbers else packed, kind)
    except NotImplementedError:
        raise _unreadable(path, tensor) from None
    floats: Floats = np.ascontiguousarray(values, dtype=np.float32)
    return floats.reshape(tensor.shape[0]) if len(tensor.shape) == 1 else floats


def _unreadable(path: Path, tensor: TensorInfo) -> ConversionError:
    return ConversionError(
        f"{tensor.name} in {path.name} is stored as {tensor.type}, which cannot be read"
    )


def without_copies(draft: ConvertibleDraft, target: GGUFHeader) -> ConvertibleDraft:
    """The draft, without its embeddings if they equal the target's, which it uses then. Trainers
    freeze the embeddings, and the copy is most of the draft: 2 GB for a target of 8B.

    Raises ConversionError, OSError.
    """
    stored = draft.tensors.get(EMBEDDINGS)
    if stored is None or not are_copied(stored, target):
        return draft
    size = format_bytes(2 * math.prod(stored.shape))
    return replace(
        draft,
        tensors={name: one for name, one in draft.tensors.items() if name != EMBEDDINGS},
        notes=(*draft.notes, f"its embeddings are its target's and were left out ({size} in F16)"),
    )


def are_copied(stored: StoredTensor, target: GGUFHeader) -> bool:
    """Whether a draft's embeddings equal its target's, within the rounding of the target's type.

    False for a type that is not compared. Raises ConversionError, OSError.
    """
    found = [
        (file, tensor)
        for file in read_shards(target.path)
        for tensor in file.tensors
        if tensor.name == EMBEDDINGS and tensor.shape[::-1] == stored.shape
    ]
    if not found or found[0][1].type not in (*_FLOATS, *_BLOCKS):
        return False
    file, tensor = found[0]
    rows = np.unique(np.linspace(0, stored.shape[0] - 1, _SAMPLED_ROWS).astype(np.int64))
    theirs = read_rows(file.path, file.data_start, tensor, rows)
    ours = np.concatenate([stored.read(row, row + 1) for row in rows]).astype(np.float32)
    return bool(ours.any() and _copied(ours, theirs, tensor.type).mean() >= _LEAST_COPIED)


def _copied(ours: Floats, theirs: Floats, kind: str) -> npt.NDArray[np.bool_]:
    """For each value, whether rounding the draft's to the target's type can give the target's."""
    if kind in _FLOATS:
        return np.asarray(np.abs(ours - theirs) <= _BF16_STEP * np.abs(ours))
    block = _BLOCKS[kind]
    spread = np.sort(theirs.reshape(-1, block), axis=1)
    gaps = np.diff(spread, axis=1)
    # Equal values differ by rounding errors of the arithmetic: such gaps are not steps.
    gaps[gaps <= 1e-3 * np.abs(spread).max(axis=1, keepdims=True)] = np.inf
    step = gaps.min(axis=1, keepdims=True)
    off = np.abs(ours - theirs).reshape(-1, block)
    return np.asarray(off <= 0.51 * step).reshape(ours.shape)

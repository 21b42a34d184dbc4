"""Leaves out embeddings that a draft copied from its target: the draft then uses the target's.

Trainers freeze the embeddings, and the copy is most of the draft: 2 GB for a target of 8B.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from eaglechat.gguf.header import GGUFHeader, read_shards
from eaglechat.hub.convert.draft import ConvertibleDraft
from eaglechat.hub.convert.gguf_rows import Floats, read_rows
from eaglechat.hub.convert.tensors import StoredTensor
from eaglechat.hub.units import format_bytes

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


def without_copies(draft: ConvertibleDraft, target: GGUFHeader) -> ConvertibleDraft:
    """The draft, without its embeddings if they equal the target's.

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

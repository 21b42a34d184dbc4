"""Reads rows of a GGUF's matrices as float32."""

from __future__ import annotations

import math
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from eaglechat.gguf.header import TensorInfo
from eaglechat.hub.errors import ConversionError

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]


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

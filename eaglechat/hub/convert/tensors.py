"""The tensors of a checkpoint: found by the headers of its files, read a few rows at a time.

safetensors files are parsed by `gguf`, which says where a tensor is: the safetensors library maps
whole files, whose pages then count as memory of this process, and its numpy mode cannot read BF16.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from gguf.utility import SafetensorsLocal

from eaglechat.hub.errors import ConversionError

_NUMPY_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4",
    "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?",
}  # fmt: skip
_WEIGHT_TYPES = ("F64", "F32", "F16", "BF16")
_LFS_POINTER = b"version https://git-lfs"

T = TypeVar("T")


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor is stored; its values are not in memory."""

    name: str
    dtype: str
    """In safetensors' notation: F32, BF16, I64, ..."""
    shape: tuple[int, ...]
    file: Path
    offset: int
    """Of its first byte in the file."""

    @property
    def holds_weights(self) -> bool:
        return self.dtype in _WEIGHT_TYPES

    @property
    def n_bytes(self) -> int:
        """Zero for a type that cannot be read."""
        numpy_type = _NUMPY_TYPES.get(self.dtype)
        return prod(self.shape) * np.dtype(numpy_type).itemsize if numpy_type else 0

    def read(self, start: int = 0, stop: int | None = None) -> npt.NDArray[Any]:
        """Rows `start` to `stop` (exclusive) of the first dimension; BF16 is widened to F32.

        Raises ConversionError if the type is unknown or the file ends early, OSError.
        """
        if self.dtype not in _NUMPY_TYPES:
            raise ConversionError(f"{self.name} is stored as {self.dtype}, which is not supported")
        stored = np.dtype(_NUMPY_TYPES[self.dtype])
        rows = (self.shape[0] if stop is None else stop) - start
        row_length = prod(self.shape[1:])
        with self.file.open("rb") as file:
            file.seek(self.offset + start * row_length * stored.itemsize)
            data = file.read(rows * row_length * stored.itemsize)
        if len(data) != rows * row_length * stored.itemsize:
            raise ConversionError(f"{self.file} is cut short inside {self.name}")
        values = np.frombuffer(data, stored)
        if self.dtype == "BF16":
            values = (values.astype("<u4") << 16).view("<f4")
        return values.reshape(rows, *self.shape[1:])


def read_safetensors(path: Path) -> list[StoredTensor]:
    """The tensors of a safetensors file, after checking that the file is as long as they need.

    Raises ConversionError, OSError.
    """
    with path.open("rb") as file:
        if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise ConversionError(
                f"{path} is a Git LFS pointer, not the weights; fetch them with `git lfs pull`"
            )
    try:
        found = SafetensorsLocal(path).tensors
    except OSError:
        raise
    except Exception as error:  # it takes whatever the JSON holds for what should be there
        raise ConversionError(
            f"{path} is not a safetensors file, or is damaged or cut short: {error}"
        ) from error
    tensors = []
    for name, one in found.items():
        tensor = StoredTensor(name, one.dtype, one.shape, path, one.data_range.offset)
        figures = (*one.shape, one.data_range.offset, one.data_range.size)
        if not isinstance(one.dtype, str) or any(type(n) is not int or n < 0 for n in figures):
            raise ConversionError(f"the header of {path} is damaged: {name} has no place or shape")
        if tensor.dtype in _NUMPY_TYPES and tensor.n_bytes != one.data_range.size:
            raise ConversionError(
                f"the header of {path} is damaged: {name} spans {one.data_range.size:,} bytes, "
                f"its shape needs {tensor.n_bytes:,}"
            )
        tensors.append(tensor)
    check_complete(path, tensors)
    return tensors


def check_complete(path: Path, tensors: Iterable[StoredTensor]) -> None:
    """Raise ConversionError if a tensor ends beyond the end of its file."""
    size = path.stat().st_size
    needed = max((tensor.offset + tensor.n_bytes for tensor in tensors), default=0)
    if needed > size:
        raise ConversionError(
            f"{path} is cut short: its header promises {needed:,} bytes, the file has {size:,}; "
            "download it again"
        )


def decode_json(data: bytes, type: type[T], what: str) -> T:
    """JSON of a checkpoint as a `type`. Raises ConversionError, which calls the data `what`."""
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConversionError(f"{what} is damaged: {error}") from error

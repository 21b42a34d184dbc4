"""Tensors of a checkpoint, found by their headers and read a few rows at a time.

Our own reader of safetensors because the library's numpy mode cannot read BF16 and maps whole
files, whose pages then count as memory of this process. Format: an eight-byte length, a JSON
header, the data (https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from eaglechat.hub.convert.errors import ConversionError
from eaglechat.hub.convert.source import typed_json

_NUMPY_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4",
    "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?",
}  # fmt: skip
_WEIGHT_TYPES = ("F64", "F32", "F16", "BF16")
_MAX_HEADER_BYTES = 64 << 20
_LFS_POINTER = b"version https://git-lfs"
LEAST_BYTES = 8 + len(_LFS_POINTER)
"""Of a file, to tell what it is."""


class Place(Protocol):
    """Where a file of a checkpoint is: a path, or a file on the Hub. Its text is for errors."""

    @property
    def name(self) -> str: ...

    def open(self, mode: Literal["rb"], /) -> BinaryIO: ...


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file of the checkpoint; nothing of it is in memory."""

    name: str
    dtype: str
    """As safetensors names it: F32, BF16, I64, ..."""
    shape: tuple[int, ...]
    path: Place
    offset: int

    @property
    def holds_weights(self) -> bool:
        return self.dtype in _WEIGHT_TYPES

    def read(self, start: int = 0, stop: int | None = None) -> npt.NDArray[Any]:
        """Rows `start` to `stop` along the first dimension; BF16 comes widened to F32.

        Raises ConversionError when the file ends early, OSError.
        """
        if self.dtype not in _NUMPY_TYPES:
            raise ConversionError(f"{self.name} is stored as {self.dtype}, which is not supported")
        stored = np.dtype(_NUMPY_TYPES[self.dtype])
        rows = (self.shape[0] if stop is None else stop) - start
        row_length = prod(self.shape[1:])
        with self.path.open("rb") as file:
            file.seek(self.offset + start * row_length * stored.itemsize)
            data = file.read(rows * row_length * stored.itemsize)
        if len(data) != rows * row_length * stored.itemsize:
            raise ConversionError(f"{self.path} is cut short inside {self.name}")
        values = np.frombuffer(data, stored)
        if self.dtype == "BF16":
            values = (values.astype("<u4") << 16).view("<f4")
        return values.reshape(rows, *self.shape[1:])


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def read_safetensors(path: Place) -> list[StoredTensor]:
    """The tensors a safetensors file holds, after checking that it holds all it promises.

    Raises ConversionError, OSError.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        end = header_end(file.read(LEAST_BYTES), path)
        file.seek(0)
        return parse_safetensors(file.read(end), path, size)


def header_end(beginning: bytes, path: Place) -> int:
    """Where the header of a safetensors file ends, by its first LEAST_BYTES.

    Raises ConversionError for another file.
    """
    _refuse_lfs_pointer(path, beginning)
    length = struct.unpack_from("<Q", beginning)[0] if len(beginning) >= 8 else 0
    if length < 2 or length > _MAX_HEADER_BYTES:
        raise ConversionError(f"{path} is not a safetensors file")
    return int(8 + length)


def parse_safetensors(beginning: bytes, path: Place, size: int) -> list[StoredTensor]:
    """The tensors of a file of `size` bytes, by its bytes up to the end of the header.

    Raises ConversionError.
    """
    end = header_end(beginning, path)
    if len(beginning) < end:
        raise ConversionError(f"{path} is cut short inside its header ({size:,} bytes)")
    what = f"the header of {path}"
    entries = typed_json.decode(beginning[8:end], dict[str, msgspec.Raw], what)
    entries.pop("__metadata__", None)
    tensors = [
        _tensor(name, typed_json.decode(raw, _Entry, what), path, end)
        for name, raw in entries.items()
    ]
    check_complete(path, tensors, size)
    return tensors


def _tensor(name: str, entry: _Entry, path: Place, data_start: int) -> StoredTensor:
    begin, end = entry.data_offsets
    numpy_type = _NUMPY_TYPES.get(entry.dtype)
    size = prod(entry.shape) * np.dtype(numpy_type).itemsize if numpy_type else end - begin
    if begin < 0 or end - begin != size or any(extent < 0 for extent in entry.shape):
        raise ConversionError(
            f"the header of {path} is damaged: {name} spans {end - begin:,} bytes, "
            f"its shape needs {size:,}"
        )
    return StoredTensor(name, entry.dtype, tuple(entry.shape), path, data_start + begin)


def check_complete(path: Place, tensors: Iterable[StoredTensor], size: int) -> None:
    """Raise ConversionError when a tensor ends behind the end of its file."""
    needed = max((t.offset + _n_bytes(t) for t in tensors), default=0)
    if needed > size:
        raise ConversionError(
            f"{path} is cut short: its header promises {needed:,} bytes, the file has {size:,}; "
            "download it again"
        )


def _n_bytes(tensor: StoredTensor) -> int:
    numpy_type = _NUMPY_TYPES.get(tensor.dtype)
    return prod(tensor.shape) * np.dtype(numpy_type).itemsize if numpy_type else 0


def _refuse_lfs_pointer(path: Place, beginning: bytes) -> None:
    if beginning.startswith(_LFS_POINTER):
        raise ConversionError(
            f"{path} is a Git LFS pointer, not the weights; fetch them with `git lfs pull`"
        )

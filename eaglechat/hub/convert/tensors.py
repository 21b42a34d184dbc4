"""The tensors of a checkpoint: found by the headers of its files, read a few rows at a time.

We do not use the safetensors library, because its numpy mode cannot read BF16 and it maps whole
files, whose pages then count as memory of this process. Format: eight bytes with the length of the
header, the header as JSON, the data (https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO, Literal, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from eaglechat.hub.errors import ConversionError

_NUMPY_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4",
    "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?",
}  # fmt: skip
_WEIGHT_TYPES = ("F64", "F32", "F16", "BF16")
_MAX_HEADER_BYTES = 64 << 20
_LFS_POINTER = b"version https://git-lfs"

T = TypeVar("T")


class CheckpointFile(Protocol):
    """A file of a checkpoint: a path on this machine, or a file on the Hub that is read in ranges.

    Its `str` names it in error messages.
    """

    @property
    def name(self) -> str: ...

    def open(self, mode: Literal["rb"], /) -> BinaryIO: ...


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor is stored; its values are not in memory."""

    name: str
    dtype: str
    """In safetensors' notation: F32, BF16, I64, ..."""
    shape: tuple[int, ...]
    file: CheckpointFile
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


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def read_safetensors(path: CheckpointFile) -> list[StoredTensor]:
    """The tensors of a safetensors file, after checking that the file is as long as they need.

    Raises ConversionError, OSError.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        beginning = file.read(8 + len(_LFS_POINTER))
        if beginning.startswith(_LFS_POINTER):
            raise ConversionError(
                f"{path} is a Git LFS pointer, not the weights; fetch them with `git lfs pull`"
            )
        length = struct.unpack_from("<Q", beginning)[0] if len(beginning) >= 8 else 0
        if length < 2 or length > _MAX_HEADER_BYTES:
            raise ConversionError(f"{path} is not a safetensors file")
        file.seek(8)
        header = file.read(length)
    if len(header) < length:
        raise ConversionError(f"{path} is cut short inside its header ({size:,} bytes)")
    what = f"the header of {path}"
    entries = decode_json(header, dict[str, msgspec.Raw], what)
    entries.pop("__metadata__", None)
    tensors = [
        _tensor(name, decode_json(raw, _Entry, what), path, 8 + length)
        for name, raw in entries.items()
    ]
    check_complete(path, tensors, size)
    return tensors


def _tensor(name: str, entry: _Entry, path: CheckpointFile, data_start: int) -> StoredTensor:
    begin, end = entry.data_offsets
    tensor = StoredTensor(name, entry.dtype, tuple(entry.shape), path, data_start + begin)
    size = tensor.n_bytes if entry.dtype in _NUMPY_TYPES else end - begin
    if begin < 0 or end - begin != size or any(extent < 0 for extent in entry.shape):
        raise ConversionError(
            f"the header of {path} is damaged: {name} spans {end - begin:,} bytes, "
            f"its shape needs {size:,}"
        )
    return tensor


def check_complete(path: CheckpointFile, tensors: Iterable[StoredTensor], size: int) -> None:
    """Raise ConversionError if a tensor ends beyond the `size` bytes of its file."""
    needed = max((tensor.offset + tensor.n_bytes for tensor in tensors), default=0)
    if needed > size:
        raise ConversionError(
            f"{path} is cut short: its header promises {needed:,} bytes, the file has {size:,}; "
            "download it again"
        )


def decode_json(data: bytes | msgspec.Raw, type: type[T], what: str) -> T:
    """JSON of a checkpoint as a `type`. Raises ConversionError, which calls the data `what`."""
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConversionError(f"{what} is damaged: {error}") from error

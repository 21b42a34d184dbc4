"""The tensors of a checkpoint: found by the headers of its files, read a few rows at a time.

safetensors files are parsed by `gguf`, which says where a tensor is: the safetensors library maps
whole files, whose pages then count as memory of this process, and its numpy mode cannot read BF16.

Files of `torch.save` are read without torch and without trusting them. Such a file is an
uncompressed zip: `data.pkl` describes the tensors, `data/<key>` holds each storage. A pickle can
name any function to be called, so every name outside a short list is refused, and the objects on
that list can only produce descriptions of tensors.
Source of the format: torch/serialization.py and torch/_utils.py.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gguf.utility import SafetensorsLocal

from eaglechat.hub.errors import ConversionError
from eaglechat.hub.references import NOT_WEIGHTS

_NUMPY_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4",
    "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?",
}  # fmt: skip
WEIGHT_TYPES = ("F64", "F32", "F16", "BF16")
_LFS_POINTER = b"version https://git-lfs"


def open_checkpoint(path: Path) -> tuple[Path, dict[str, StoredTensor]]:
    """The directory of a checkpoint, and its tensors by their names in the files.

    `path` is the directory or one weights file. In a directory, safetensors files are preferred to
    `.bin` files; a file with any other ending is read as one of torch.save.
    Raises ConversionError, OSError.
    """
    if not path.exists():
        raise ConversionError(f"the checkpoint {path} does not exist")
    # Opening a pipe would wait until someone writes to it.
    if not path.is_file() and not path.is_dir():
        raise ConversionError(f"the checkpoint {path} is a device or a pipe, not a file")
    directory, files = (path.parent, [path]) if path.is_file() else (path, _weight_files(path))
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        read = read_safetensors if file.name.endswith(".safetensors") else read_bin
        for tensor in read(file):
            if tensor.name in tensors:
                raise ConversionError(
                    f"{tensor.name} is both in {tensors[tensor.name].file.name} and in {file.name}"
                )
            tensors[tensor.name] = tensor
    return directory, tensors


def _weight_files(directory: Path) -> list[Path]:
    """The files of a directory that hold its weights: those named as usual, else all."""
    files = sorted(file for file in directory.iterdir() if file.is_file())
    for stem, ending in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        weights = [file for file in files if file.name.endswith(ending)]
        weights = [file for file in weights if not NOT_WEIGHTS.search(file.name)]
        if weights:
            return [file for file in weights if file.name.startswith(stem)] or weights
    raise ConversionError(f"{directory} holds no weights: neither *.safetensors nor *.bin")


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


# Files of torch.save

_MAX_PICKLE_BYTES = 2 << 20
"""A tensor needs about 150 bytes of pickle; unpickling takes up to 60 times the pickle's size."""
_MAX_TUPLES = 10_000
"""A tensor needs four. Python hashes nested tuples recursively without a depth limit: 2 million
nested tuples as a dictionary key end the process with SIGSEGV; 120,000 did not, with a stack of
8 MiB."""
_LOCAL_HEADER_BYTES = 30

# storage class of torch -> (dtype as safetensors names it, bytes per element)
_STORAGES = {
    "DoubleStorage": ("F64", 8), "FloatStorage": ("F32", 4), "HalfStorage": ("F16", 2),
    "BFloat16Storage": ("BF16", 2), "LongStorage": ("I64", 8), "IntStorage": ("I32", 4),
    "ShortStorage": ("I16", 2), "CharStorage": ("I8", 1), "ByteStorage": ("U8", 1),
    "BoolStorage": ("BOOL", 1),
}  # fmt: skip


def read_bin(path: Path) -> list[StoredTensor]:
    """The tensors of a `pytorch_model.bin`; their values are not read.

    Raises ConversionError (also if the pickle asks for anything but tensors), OSError.
    """
    file = path.open("rb")
    try:
        with file, zipfile.ZipFile(file) as archive:
            loaded = _unpickle(path, archive)
    except zipfile.BadZipFile:
        with path.open("rb") as file:
            is_cut = file.read(2) == b"PK"
        what = "is cut short; download it again" if is_cut else "is not a file of torch.save"
        raise ConversionError(f"{path} {what}") from None
    except ConversionError as refusal:
        raise ConversionError(f"{path} {refusal}") from None
    except Exception as error:  # a damaged archive or pickle can raise any exception
        raise ConversionError(f"{path} is damaged: its list of tensors cannot be read") from error
    if not isinstance(loaded, dict):
        raise ConversionError(f"{path} holds a {type(loaded).__name__}, not named tensors")
    tensors = []
    for name, value in loaded.items():
        # Do not show the repr of unpickled objects: deep nesting would raise RecursionError.
        if not isinstance(name, str):
            kind = type(name).__name__
            raise ConversionError(f"{path} names a tensor with a {kind}, not with text")
        if not isinstance(value, _View):
            raise ConversionError(
                f"{path} holds a {type(value).__name__} under {name!r} where a tensor is expected"
            )
        tensors.append(StoredTensor(name, value.dtype, value.shape, path, value.offset))
    check_complete(path, tensors)
    return tensors


def _unpickle(path: Path, archive: zipfile.ZipFile) -> Any:
    pickles = [entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl")]
    if len(pickles) != 1 or pickles[0].file_size > _MAX_PICKLE_BYTES:
        raise ConversionError("is a zip file, but not one of torch.save")
    root = pickles[0].filename[: -len("data.pkl")]
    data = archive.read(pickles[0])
    _check_opcodes(data)
    return _TensorUnpickler(data, path, archive, root).load()


_MEMO = ("PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET")


def _check_opcodes(data: bytes) -> None:
    """Refuse a pickle that would take far more memory than its own size.

    The unpickler allocates as many memo places as the highest memo index says; `genops` itself
    refuses an opcode that announces more bytes than there are. See also _MAX_TUPLES.
    Raises ConversionError, and ValueError for data that is no pickle.
    """
    tuples = 0
    for opcode, argument, _ in pickletools.genops(data):
        tuples += "TUPLE" in opcode.name
        if tuples > _MAX_TUPLES:
            raise ConversionError("is damaged: it holds more tuples than a checkpoint needs")
        if opcode.name in _MEMO and int(argument or 0) > len(data):
            raise ConversionError(f"is damaged: its memo has {len(data)} places, not {argument}")


# Named tuples and classes without attributes, so that a pickle cannot modify what it reaches.
class _Storage(NamedTuple):
    dtype: str
    item_bytes: int
    n_items: int
    offset: int


class _View(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    offset: int


class _RebuildTensor:
    """Stands for torch._utils._rebuild_tensor_v2."""

    __slots__ = ()

    def __call__(
        self, storage: _Storage, first: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
    ) -> _View:
        contiguous = tuple(prod(size[i + 1 :]) for i in range(len(size)))
        # The stride of a dimension of size 1 is meaningless; torch stores any value there.
        if any(s != c and n > 1 for s, c, n in zip(stride, contiguous, size, strict=True)):
            raise ConversionError("holds a transposed tensor; save it again as safetensors")
        if first < 0 or min(size, default=1) < 0 or first + prod(size) > storage.n_items:
            raise ConversionError("is damaged: a tensor exceeds its storage")
        return _View(storage.dtype, tuple(size), storage.offset + first * storage.item_bytes)


class _RebuildParameter:
    """Stands for torch._utils._rebuild_parameter."""

    __slots__ = ()

    def __call__(self, tensor: _View, *_: Any) -> _View:
        return tensor


class _TensorUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, path: Path, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(io.BytesIO(data))
        self._path, self._archive, self._root = path, archive, root
        self._allowed: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _RebuildTensor(),
            ("torch._utils", "_rebuild_parameter"): _RebuildParameter(),
            **{("torch", storage): storage for storage in _STORAGES},
        }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise ConversionError(
                f"asks for {module}.{name}, which is not a tensor, so it is not opened: "
                "a pickle can run any program"
            ) from None

    def persistent_load(self, pid: Any) -> _Storage:
        _, storage_class, key, _, n_items = pid
        dtype, item_bytes = _STORAGES[storage_class]
        entry = self._archive.getinfo(f"{self._root}data/{key}")
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size < n_items * item_bytes:
            raise ConversionError(f"is damaged: storage {key} is not whole")
        with self._path.open("rb") as file:
            file.seek(entry.header_offset)
            header = file.read(_LOCAL_HEADER_BYTES)
        name_bytes = int.from_bytes(header[26:28], "little")
        extra_bytes = int.from_bytes(header[28:30], "little")
        offset = entry.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes
        return _Storage(dtype, item_bytes, n_items, offset)

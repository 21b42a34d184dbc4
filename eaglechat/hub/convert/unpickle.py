"""Finds the tensors in a file written by `torch.save`, without torch and without trusting the file.

Such a file is an uncompressed zip: `data.pkl` describes the tensors, `data/<key>` holds each
storage. A pickle can name any function to be called, so every name outside a short list is
refused, and the objects on that list can only produce descriptions of tensors.
Source of the format: torch/serialization.py and torch/_utils.py.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from eaglechat.hub.convert.tensors import StoredTensor, check_complete
from eaglechat.hub.errors import ConversionError

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
        raise ConversionError(_not_a_zip(path)) from None
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


def _not_a_zip(path: Path) -> str:
    with path.open("rb") as file:
        beginning = file.read(2)
    if beginning == b"PK":
        return f"{path} is cut short; download it again"
    return f"{path} is not a file of torch.save"


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

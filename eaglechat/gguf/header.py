"""Reads the header of a GGUF file: metadata and tensor sizes, never the weights.

Our own reader because PyPI's `gguf` builds a numpy array for every token of the vocabulary
(seconds for 150,000 tokens) and needs the whole file at hand; a menu needs milliseconds, and a
file on the Hub is judged from its first bytes.
Source of the format: ggml/docs/gguf.md and gguf-py/gguf/constants.py of llama.cpp.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_KEEP_ARRAY_UP_TO = 64

_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}

# ggml type -> (name, elements per block, bytes per block)
_TENSOR_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4),
    27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}  # fmt: skip

# general.file_type -> the name people write
_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M",
    30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4", 39: "NVFP4",
    40: "Q1_0", 41: "Q2_0",
}  # fmt: skip

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


class GGUFError(ValueError):
    """The file is not a GGUF this program can read; the text is one sentence that says why."""


class GGUFTruncatedError(GGUFError):
    """The file, or the part of it that was given, ends too early."""


@dataclass(frozen=True)
class TensorInfo:
    """Name, dimensions as GGUF orders them (ne[0] first), type, and place after the header."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    n_bytes: int | None
    """None for a type this reader does not know."""


@dataclass(frozen=True)
class Array:
    """An array in the metadata; `values` is None where it is longer than anyone reads."""

    length: int
    values: tuple[Any, ...] | None


@dataclass(frozen=True)
class GGUFHeader:
    """What the header of a GGUF says."""

    path: Path
    version: int
    fields: Mapping[str, Any] = field(repr=False)
    tensors: tuple[TensorInfo, ...] = field(repr=False)
    data_start: int
    size_bytes: int
    """Size of the model's files on disk, all shards of a split model together."""
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)
    """First byte and end of each field in the file, its key included: to copy it verbatim."""

    def get(self, key: str, default: Any = None) -> Any:
        """A value by its full key, or with `{arch}` standing for the architecture."""
        return self.fields.get(key.replace("{arch}", self.architecture), default)

    def number(self, key: str) -> int:
        """A whole number by its key; 0 where it is missing or something else."""
        value = self.get(key)
        return value if isinstance(value, int) else 0

    def array(self, key: str) -> tuple[Any, ...] | None:
        value = self.get(key)
        return value.values if isinstance(value, Array) else None

    @property
    def architecture(self) -> str:
        return str(self.fields.get("general.architecture", ""))

    @property
    def name(self) -> str:
        return str(self.fields.get("general.name") or self.path.stem)

    @property
    def n_embd(self) -> int:
        return self.number("{arch}.embedding_length")

    @property
    def n_layers(self) -> int:
        """Layers of the model proper, without its multi-token prediction layers."""
        return self.number("{arch}.block_count") - self.number("{arch}.nextn_predict_layers")

    @property
    def n_ctx_train(self) -> int:
        return self.number("{arch}.context_length")

    @property
    def n_vocab(self) -> int:
        tokens = self.get("tokenizer.ggml.tokens")
        return tokens.length if isinstance(tokens, Array) else 0

    @property
    def quantization(self) -> str:
        """The file type if the header names it, else the type of most of its weights."""
        named = _FILE_TYPES.get(self.fields.get("general.file_type", -1))
        if named:
            return named
        by_type: dict[str, int] = {}
        for tensor in self.tensors:
            if len(tensor.shape) > 1:
                by_type[tensor.type] = by_type.get(tensor.type, 0) + (tensor.n_bytes or 0)
        return max(by_type, key=by_type.__getitem__, default="?")


def read_header(path: Path) -> GGUFHeader:
    """Read the header of a file, and check that the file holds what the header promises.

    Raises GGUFError (GGUFTruncatedError where the file is cut short) and OSError.
    """
    header = _read_file(path)
    paths = shard_paths(path)
    if len(paths) == 1:
        return header
    _check_shards(path, paths)
    sizes = [_read_file(other).size_bytes for other in paths[1:]]
    return replace(header, size_bytes=header.size_bytes + sum(sizes))


def _read_file(path: Path) -> GGUFHeader:
    """The header of one file that is whole."""
    size = path.stat().st_size
    if path.is_dir():
        raise GGUFError(f"{path} is a directory, not a GGUF file")
    if size == 0:
        raise GGUFError(f"{path} is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        header = parse_header(data, path, size)
    _check_complete(header, size)
    return header


def parse_header(data: bytes | mmap.mmap, path: Path, size: int) -> GGUFHeader:
    """Parse a header from the first bytes of a file of `size` bytes.

    Raises GGUFTruncatedError when the bytes end inside the header, GGUFError when they are
    something else.
    """
    try:
        return _parse(data, path, size)
    except (struct.error, IndexError, OverflowError) as error:
        raise GGUFTruncatedError(
            f"{path} is cut short inside its header ({size:,} bytes)"
        ) from error


def parse_beginning(data: bytes, path: Path, size: int) -> GGUFHeader | None:
    """What the first bytes of a file say of its shape: no tensors, and nothing past the vocabulary.

    None where they end before the vocabulary, which writers put behind the model's figures.
    """
    fields: dict[str, Any] = {}
    try:
        cursor, version, _, n_fields = _open(data, path)
        for _ in range(n_fields):
            key, kind = cursor.string(), cursor.scalar("I")
            if key == "tokenizer.ggml.tokens" and kind == _ARRAY:
                cursor.scalar("I")
                fields[key] = Array(cursor.scalar("Q"), None)
                return GGUFHeader(path, version, fields, (), 0, size)
            fields[key] = cursor.value(kind)
    except (struct.error, IndexError, OverflowError, GGUFError):
        pass
    return None


def _open(data: bytes | mmap.mmap, path: Path) -> tuple[_Cursor, int, int, int]:
    """A cursor at the first field, the version, and the counts of tensors and fields."""
    if data[:4] != MAGIC:
        raise GGUFError(f"{path} is not a GGUF file: it begins with {bytes(data[:4])!r}")
    cursor = _Cursor(data, position=4)
    version = cursor.scalar("I")
    if version not in _VERSIONS:
        raise GGUFError(f"{path} is a GGUF of version {version}; this program reads 2 and 3")
    return cursor, version, cursor.scalar("Q"), cursor.scalar("Q")


def _parse(data: bytes | mmap.mmap, path: Path, size: int) -> GGUFHeader:
    cursor, version, n_tensors, n_fields = _open(data, path)
    fields: dict[str, Any] = {}
    spans: dict[str, tuple[int, int]] = {}
    for _ in range(n_fields):
        start = cursor.position
        key = cursor.string()
        fields[key] = cursor.value(cursor.scalar("I"))
        spans[key] = (start, cursor.position)
    tensors = tuple(cursor.tensor() for _ in range(n_tensors))
    alignment = fields.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0:
        raise GGUFError(f"{path} has an alignment of {alignment!r}, which is no number of bytes")
    data_start = -(-cursor.position // alignment) * alignment
    return GGUFHeader(path, version, fields, tensors, data_start, size, spans)


class _Cursor:
    """Walks through the bytes of a header."""

    def __init__(self, data: bytes | mmap.mmap, position: int) -> None:
        self.data = data
        self.position = position
        self._end = len(data)

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.position)
        self.position += struct.calcsize("<" + code)
        return value

    def string(self) -> str:
        length = self.scalar("Q")
        start = self.position
        self._skip(length)
        return bytes(self.data[start : self.position]).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array()
        if kind not in _SCALARS:
            raise GGUFError(f"the header holds a value of unknown type {kind}")
        return self.scalar(_SCALARS[kind])

    def array(self) -> Array:
        kind, length = self.scalar("I"), self.scalar("Q")
        if kind != _STRING and kind not in _SCALARS:
            raise GGUFError(f"the header holds an array of unknown type {kind}")
        if length <= _KEEP_ARRAY_UP_TO:
            return Array(length, tuple(self.value(kind) for _ in range(length)))
        if kind == _STRING:
            self._skip_strings(length)
        else:
            self._skip(length * struct.calcsize("<" + _SCALARS[kind]))
        return Array(length, None)

    def tensor(self) -> TensorInfo:
        name = self.string()
        shape = tuple(self.scalar("Q") for _ in range(self.scalar("I")))
        kind, offset = self.scalar("I"), self.scalar("Q")
        if kind not in _TENSOR_TYPES:
            return TensorInfo(name, shape, f"type {kind}", offset, None)
        type_name, block, block_bytes = _TENSOR_TYPES[kind]
        elements = 1
        for extent in shape:
            elements *= extent
        return TensorInfo(name, shape, type_name, offset, elements // block * block_bytes)

    def _skip_strings(self, count: int) -> None:
        # The hot loop of a header: a vocabulary is 50,000 to 250,000 of these.
        data, position, unpack = self.data, self.position, struct.Struct("<Q").unpack_from
        for _ in range(count):
            position += 8 + unpack(data, position)[0]
        self.position = position
        self._skip(0)

    def _skip(self, count: int) -> None:
        self.position += count
        if self.position > self._end:
            raise IndexError(self.position)


def _check_complete(header: GGUFHeader, size: int) -> None:
    ends = (t.offset + t.n_bytes for t in header.tensors if t.n_bytes is not None)
    needed = header.data_start + max(ends, default=0)
    if needed > size:
        raise GGUFTruncatedError(
            f"{header.path} is cut short: its header promises {needed:,} bytes, "
            f"the file has {size:,}"
        )


def shard_paths(path: Path) -> list[Path]:
    """All files of a split model in order, or just `path`; missing ones are listed too."""
    match = _SHARD.search(path.name)
    if not match:
        return [path]
    stem, total = path.name[: match.start()], int(match[2])
    return [path.with_name(f"{stem}-{i:05d}-of-{total:05d}.gguf") for i in range(1, total + 1)]


def _check_shards(path: Path, paths: list[Path]) -> None:
    if path != paths[0]:
        raise GGUFError(
            f"{path} is not the first of a model in {len(paths)} files; give {paths[0].name}"
        )
    missing = [other.name for other in paths if not other.exists()]
    if missing:
        raise GGUFError(
            f"{path} is part of a model in {len(paths)} files; missing: {', '.join(missing)}"
        )

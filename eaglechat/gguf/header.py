"""Reads the header of a GGUF file: metadata and tensor sizes, never the weights.

Our own reader because PyPI's `gguf` builds a numpy array for every token of the vocabulary
(seconds for 150,000 tokens) and needs the whole file at hand; a menu needs milliseconds, and a
file on the Hub is judged from its first bytes.
Source of the format: ggml/docs/gguf.md and gguf-py/gguf/constants.py of llama.cpp.
"""

from __future__ import annotations

import io
import math
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from eaglechat.gguf.cursor import ARRAY, Array, Cursor
from eaglechat.gguf.errors import GGUFError, GGUFTruncatedError, printable
from eaglechat.gguf.shards import Shard, shard_of, shard_paths

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MOST_FIELDS, _MOST_TENSORS, _MOST_DIMENSIONS = 1 << 14, 1 << 16, 4
_MOST_BYTES = 1 << 62
_MOST_SHOWN = 200
_ARCHITECTURE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

MOST_LAYERS = 512
"""llama.cpp's LLAMA_MAX_LAYERS."""

# What this program reads of a model's figures -> the most that can be meant.
_FIGURES = {
    "block_count": MOST_LAYERS,
    "nextn_predict_layers": MOST_LAYERS,
    "full_attention_interval": MOST_LAYERS,
    "attention.shared_kv_layers": MOST_LAYERS,
    "embedding_length": 1 << 20,
    "target_hidden_size": 1 << 20,
    "context_length": 1 << 31,
    "attention.key_length": 1 << 16,
    "attention.value_length": 1 << 16,
    "attention.key_length_swa": 1 << 16,
    "attention.value_length_swa": 1 << 16,
}
_FIGURES_PER_LAYER = {
    "feed_forward_length": 1 << 24,
    "attention.head_count": 1 << 16,
    "attention.head_count_kv": 1 << 16,
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

    def number(self, key: str, default: int = 0) -> int:
        """A whole number by its key; the default where it is missing or something else."""
        value = self.get(key)
        return value if _is_whole(value) else default

    def numbers(self, key: str) -> tuple[int, ...] | None:
        """A list of whole numbers; None where it is missing, something else, or very long."""
        value = self.get(key)
        values = value.values if isinstance(value, Array) else None
        return values if values is not None and all(map(_is_whole, values)) else None

    def flags(self, key: str) -> tuple[bool, ...]:
        """A list of yes or no, or of numbers that stand for it; empty where there is none."""
        value = self.get(key)
        return tuple(map(bool, value.values or ())) if isinstance(value, Array) else ()

    def text(self, key: str) -> str:
        """The beginning of a text by its key, fit for a terminal; empty where it is missing or
        something else."""
        value = self.get(key)
        return printable(value[:_MOST_SHOWN]) if isinstance(value, str) else ""

    @property
    def architecture(self) -> str:
        return str(self.fields.get("general.architecture", ""))

    @property
    def name(self) -> str:
        return self.text("general.name") or self.path.stem

    @property
    def n_embd(self) -> int:
        return self.number("{arch}.embedding_length")

    @property
    def n_layers(self) -> int:
        """Layers of the model proper, without its multi-token prediction layers."""
        beside = self.number("{arch}.nextn_predict_layers")
        return max(self.number("{arch}.block_count") - beside, 0)

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
        named = _FILE_TYPES.get(self.number("general.file_type", -1))
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
    first, *others = read_shards(path)
    return replace(first, size_bytes=first.size_bytes + sum(other.size_bytes for other in others))


def read_tensor(header: GGUFHeader, tensor: TensorInfo) -> bytes:
    """A tensor's bytes, as they lie in the file. Raises GGUFTruncatedError, OSError."""
    n_bytes = tensor.n_bytes or 0
    with header.path.open("rb") as file:
        file.seek(header.data_start + tensor.offset)
        data = file.read(n_bytes)
    if len(data) < n_bytes:
        raise GGUFTruncatedError(f"{header.path} was cut short while it was read")
    return data


def read_shards(path: Path) -> list[GGUFHeader]:
    """The headers of all files of a split model in order, or the one of `path`; raises as above."""
    header = _read_file(path)
    shard = shard_of(path.name)
    if shard is None:
        return [header]
    paths = shard_paths(path)
    _check_shards(path, shard, paths)
    return [header, *map(_read_file, paths[1:])]


def _read_file(path: Path) -> GGUFHeader:
    """The header of one file that is whole."""
    try:
        status = path.stat()
    except ValueError:
        raise GGUFError(f"{path} cannot be the name of a file") from None
    if stat.S_ISDIR(status.st_mode):
        raise GGUFError(f"{path} is a directory, not a GGUF file")
    if not stat.S_ISREG(status.st_mode):
        raise GGUFError(f"{path} is a device or a pipe, not a GGUF file")
    if status.st_size == 0:
        raise GGUFError(f"{path} is empty")
    # Read, not mapped: a mapped file that is cut short meanwhile kills the process.
    with path.open("rb") as file:
        header = _parse(file, path, status.st_size)
    _check_complete(header, status.st_size)
    return header


def parse_header(data: bytes, path: Path, size: int) -> GGUFHeader:
    """Parse a header from the first bytes of a file of `size` bytes.

    Raises GGUFTruncatedError when the bytes end inside the header, GGUFError when they are
    something else.
    """
    return _parse(io.BytesIO(data), path, size)


def parse_beginning(data: bytes, path: Path, size: int) -> GGUFHeader | None:
    """What the first bytes of a file say of its shape: no tensors, and nothing past the vocabulary.

    None where they end before the vocabulary, which writers put behind the model's figures.
    """
    fields: dict[str, Any] = {}
    try:
        cursor, version, _, n_fields = _open(io.BytesIO(data), path, size)
        for _ in range(n_fields):
            key, kind = cursor.text(), cursor.scalar("I")
            if key == "tokenizer.ggml.tokens" and kind == ARRAY:
                fields[key] = cursor.array_head()
                _check_figures(fields, path)
                return GGUFHeader(path, version, fields, (), 0, size)
            fields[key] = cursor.value(kind)
    except GGUFError:
        pass
    return None


def _open(file: BinaryIO, path: Path, size: int) -> tuple[Cursor, int, int, int]:
    """A cursor at the first field, the version, and the counts of tensors and fields."""
    magic = file.read(len(MAGIC))
    if magic != MAGIC:
        raise GGUFError(f"{path} is not a GGUF file: it begins with {magic!r}")
    file.seek(0)
    cursor = Cursor(file, str(path), size)
    cursor.raw(len(MAGIC))
    version = cursor.scalar("I")
    if version not in _VERSIONS:
        raise GGUFError(f"{path} is a GGUF of version {version}; this program reads 2 and 3")
    n_tensors, n_fields = cursor.scalar("Q"), cursor.scalar("Q")
    if n_tensors > _MOST_TENSORS or n_fields > _MOST_FIELDS:
        raise GGUFError(
            f"{path} claims {n_tensors:,} tensors and {n_fields:,} fields, more than any model"
        )
    return cursor, version, n_tensors, n_fields


def _parse(file: BinaryIO, path: Path, size: int) -> GGUFHeader:
    cursor, version, n_tensors, n_fields = _open(file, path, size)
    fields: dict[str, Any] = {}
    spans: dict[str, tuple[int, int]] = {}
    for _ in range(n_fields):
        start = cursor.position
        key = cursor.text()
        fields[key] = cursor.value(cursor.scalar("I"))
        spans[key] = (start, cursor.position)
    _check_figures(fields, path)
    tensors = tuple(_tensor(cursor, path) for _ in range(n_tensors))
    if cursor.position > size:
        raise GGUFTruncatedError(f"{path} is cut short inside its header ({size:,} bytes)")
    alignment = fields.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not _is_whole(alignment) or alignment <= 0:
        raise GGUFError(f"{path} has an alignment of {_shown(alignment)}, no number of bytes")
    data_start = -(-cursor.position // alignment) * alignment
    return GGUFHeader(path, version, fields, tensors, data_start, size, spans)


def _tensor(cursor: Cursor, path: Path) -> TensorInfo:
    name, n_dimensions = cursor.text(), cursor.scalar("I")
    if n_dimensions > _MOST_DIMENSIONS:
        raise GGUFError(
            f"{path} has a tensor of {n_dimensions:,} dimensions, llama.cpp reads up to "
            f"{_MOST_DIMENSIONS}"
        )
    shape = tuple(cursor.scalar("Q") for _ in range(n_dimensions))
    kind, offset = cursor.scalar("I"), cursor.scalar("Q")
    if kind not in _TENSOR_TYPES:
        return TensorInfo(name, shape, f"type {kind}", offset, None)
    type_name, block, block_bytes = _TENSOR_TYPES[kind]
    n_bytes = math.prod(shape) // block * block_bytes
    if n_bytes > _MOST_BYTES:
        raise GGUFError(f"{path} has a tensor of the shape {list(shape)}, larger than any disk")
    return TensorInfo(name, shape, type_name, offset, n_bytes)


def _check_figures(fields: Mapping[str, Any], path: Path) -> None:
    """See that what this program reads of a header is of the type and size it takes it for."""
    architecture = fields.get("general.architecture", "")
    if architecture != "" and not (
        isinstance(architecture, str) and _ARCHITECTURE.fullmatch(architecture)
    ):
        raise GGUFError(f"{path} names as its architecture {_shown(architecture)}, which is none")
    for key, most in _FIGURES.items():
        _check_figure(fields, f"{architecture}.{key}", most, path)
    for key, most in _FIGURES_PER_LAYER.items():
        _check_figure(fields, f"{architecture}.{key}", most, path, per_layer=True)
    tokens = fields.get("tokenizer.ggml.tokens")
    if tokens is not None and not (isinstance(tokens, Array) and tokens.is_text):
        raise GGUFError(
            f"{path} gives as tokenizer.ggml.tokens {_shown(tokens)}, not a list of texts"
        )


def _check_figure(
    fields: Mapping[str, Any], key: str, most: int, path: Path, *, per_layer: bool = False
) -> None:
    value = fields.get(key, 0)
    is_listed = per_layer and isinstance(value, Array) and not value.is_text
    listed = value.values if is_listed else (value,)
    for one in listed or ():
        if not _is_whole(one) or not 0 <= one <= most:
            raise GGUFError(
                f"{path} gives as {key} {_shown(one)}, not a whole number up to {most:,}"
            )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """A value out of a header, short enough for a sentence."""
    if isinstance(value, Array):
        return f"a list of {value.length:,}{' texts' if value.is_text else ''}"
    return repr(value) if not isinstance(value, str) or len(value) <= 40 else repr(value[:40]) + "…"


def _check_complete(header: GGUFHeader, size: int) -> None:
    ends = (t.offset + t.n_bytes for t in header.tensors if t.n_bytes is not None)
    needed = header.data_start + max(ends, default=0)
    if needed > size:
        raise GGUFTruncatedError(
            f"{header.path} is cut short: its header promises {needed:,} bytes, "
            f"the file has {size:,}"
        )


def _check_shards(path: Path, shard: Shard, present: list[Path]) -> None:
    if not shard.is_possible:
        raise GGUFError(
            f"{path} is named as file {shard.number} of {shard.count}, which no split model has; "
            "give it another name"
        )
    first = f"{shard.stem}-{1:05d}-of-{shard.count:05d}.gguf"
    if shard.number != 1:
        raise GGUFError(f"{path} is not the first of a model in {shard.count} files; give {first}")
    here = {other.number for other in map(shard_of, (p.name for p in present)) if other}
    missing = [number for number in range(1, shard.count + 1) if number not in here]
    if missing:
        names = [f"{shard.stem}-{number:05d}-of-{shard.count:05d}.gguf" for number in missing[:3]]
        more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
        raise GGUFError(
            f"{path} is part of a model in {shard.count} files; missing: {', '.join(names)}{more}"
        )

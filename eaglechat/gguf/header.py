"""Reads the header of a GGUF file: metadata and tensor sizes, never the weights.

Not with PyPI's `gguf`: it makes a numpy array of every token, which takes long, and it needs the
whole file, but a file on the Hub is judged by its first bytes.

A file may be cut short while it is read, or be made to break its reader. Whatever the bytes are,
reading returns values or raises GGUFError, within bounded time and memory.
Source of the format: ggml/docs/gguf.md and gguf-py/gguf/constants.py of llama.cpp.
"""

from __future__ import annotations

import math
import re
import stat
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from eaglechat.gguf.shards import Shard, shard_of, shard_paths
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import ModelInfo

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SWAPPED_VERSIONS = tuple(version << 24 for version in _VERSIONS)
_SIGNS = (
    (rb"version https://git-lfs", "a pointer of Git LFS to the model: `git lfs pull` fetches that"),
    (rb"(\xef\xbb\xbf)?\s*<", "a web page: download the model again"),
    (rb"tjgg|fmgg|lmgg|algg", "a model of the time before GGUF: download it as GGUF"),
    (rb".{8}\{|PK\x03\x04", "a checkpoint of safetensors or PyTorch: download the model as GGUF"),
    (rb"\x1f\x8b|7z|Rar!|BZh|\xfd7zXZ|\x28\xb5\x2f\xfd", "compressed: unpack it first"),
)
"""How files begin that people take for a GGUF, and what they are."""
_MOST_SIGN = 32
"""Bytes of a file that tell what it is."""
_DEFAULT_ALIGNMENT = 32
MOST_HEADER_BYTES = 64 << 20
"""Four times the header of a model with 260,000 tokens, the largest there is."""
_MOST_FIELDS, _MOST_TENSORS, _MOST_DIMENSIONS = 1 << 14, 1 << 16, 4
_MOST_TENSOR_BYTES = 1 << 62
_MOST_SHOWN = 200
_MOST_KEPT = 512
"""The values of longer arrays are not kept. Arrays that are read have a value per layer."""
_MOST_SKIPPED_TEXTS = 1 << 21
_READ = 8 << 20
"""Bytes read from a file at first: few headers are longer."""
_ARCHITECTURE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_MOST_LAYERS = 512
"""llama.cpp's LLAMA_MAX_LAYERS."""

# Metadata that this program reads -> the largest value it accepts
_FIGURES = {
    "block_count": _MOST_LAYERS,
    "nextn_predict_layers": _MOST_LAYERS,
    "full_attention_interval": _MOST_LAYERS,
    "attention.shared_kv_layers": _MOST_LAYERS,
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


NO_TEMPLATE = "the target's file has no chat template, so it is probably a base model"
_HEAD_TENSOR = ".nextn.eh_proj.weight"

_TEXT, _ARRAY = 8, 9
# GGUF value type -> code of the struct module
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_LENGTH = struct.Struct("<Q")


class GGUFError(EngineError):
    """The file is not a GGUF this program can read; the text is one sentence that says why."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class GGUFTruncatedError(GGUFError):
    """The file, or the part of it that was given, ends too early."""


def printable(text: str) -> str:
    """Text from a file or its name, with control and unprintable characters replaced."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


@dataclass(frozen=True)
class Array:
    """An array of the metadata. `values` is None for an array of texts or of over 512 values."""

    length: int
    values: tuple[Any, ...] | None
    is_text: bool


class TensorInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    name: str
    shape: tuple[int, ...]
    """In GGUF's order: the number of values in a row comes first."""
    type: str
    offset: int
    """Bytes from the header's `data_start`."""
    n_bytes: int | None
    """None for a type that is not in `_TENSOR_TYPES`."""


@dataclass(frozen=True)
class GGUFHeader:
    path: Path
    fields: Mapping[str, Array | str | int | float | bool] = field(repr=False)
    tensors: tuple[TensorInfo, ...] = field(repr=False)
    data_start: int
    size_bytes: int
    """Size of the model's files on disk, all shards of a split model together."""
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)
    """Of each field, its first byte in the file (that of its key) and its end."""
    tensors_elsewhere: tuple[TensorInfo, ...] = field(default=(), repr=False)
    """Those in the other files of a split model."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, in which `{arch}` stands for the architecture."""
        return self.fields.get(key.replace("{arch}", self.architecture), default)

    @property
    def has_chat_template(self) -> bool:
        template = self.get("tokenizer.chat_template")
        return isinstance(template, str) and bool(template.strip())

    def number(self, key: str, default: int = 0) -> int:
        """The whole number of a key; the default if there is none."""
        value = self.get(key)
        return value if _is_whole(value) else default

    def numbers(self, key: str) -> tuple[int, ...] | None:
        """The whole numbers of a key; None if there is no list of them, or it is over 512 long."""
        value = self.get(key)
        values = value.values if isinstance(value, Array) else None
        return values if values is not None and all(map(_is_whole, values)) else None

    def flags(self, key: str) -> tuple[bool, ...]:
        """The booleans of a key, or its numbers as booleans; empty if there is no such list."""
        value = self.get(key)
        return tuple(map(bool, value.values or ())) if isinstance(value, Array) else ()

    def text(self, key: str) -> str:
        """The first 200 characters of a key's text, printable; empty if there is none."""
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
        """Without the layers for multi-token prediction, which llama.cpp counts too."""
        extra = self.number("{arch}.nextn_predict_layers")
        return max(self.number("{arch}.block_count") - extra, 0)

    @cached_property
    def n_mtp_heads(self) -> int:
        """The multi-token-prediction heads that it has; fewer than it declares if they were
        stripped."""
        tensors = (*self.tensors, *self.tensors_elsewhere)
        return sum(tensor.name.endswith(_HEAD_TENSOR) for tensor in tensors)

    @property
    def is_heads_alone(self) -> bool:
        """Whether it has the multi-token-prediction heads of a model without its other layers.

        llama.cpp tells by the same tensor. Opened as a target, such a file ends the process.
        """
        tensors = (*self.tensors, *self.tensors_elsewhere)
        return self.n_mtp_heads > 0 and not any(
            tensor.name == "blk.0.attn_norm.weight" for tensor in tensors
        )

    @property
    def n_ctx_train(self) -> int:
        return self.number("{arch}.context_length")

    @property
    def n_vocab(self) -> int:
        tokens = self.get("tokenizer.ggml.tokens")
        return tokens.length if isinstance(tokens, Array) else 0

    @property
    def quantization(self) -> str:
        """The file type that the header names, else the type of most bytes of its matrices."""
        named = _FILE_TYPES.get(self.number("general.file_type", -1))
        if named:
            return named
        by_type: dict[str, int] = {}
        for tensor in self.tensors:
            if len(tensor.shape) > 1:
                by_type[tensor.type] = by_type.get(tensor.type, 0) + (tensor.n_bytes or 0)
        return max(by_type, key=by_type.__getitem__, default="?")


class _Cursor:
    """Reads values one after the other from the first bytes of a file.

    `name` and `size`, the bytes of the whole file, are for error messages.
    """

    def __init__(self, data: bytes, name: str, size: int) -> None:
        self._data, self._name, self._size = data, name, size
        self.position = 0
        self._skipped_texts = 0

    def raw(self, count: int) -> bytes:
        at = self.skip(count)
        return self._data[at : self.position]

    def scalar(self, code: str) -> Any:
        """A number; `code` is that of the struct module."""
        at = self.skip(struct.calcsize(code))
        return struct.unpack_from("<" + code, self._data, at)[0]

    def text(self) -> str:
        return self.raw(self.scalar("Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        """An int, float, bool, str or Array, by its GGUF value type."""
        if kind == _TEXT:
            return self.text()
        if kind == _ARRAY:
            return self._array()
        return self.scalar(self._code(kind))

    def skip(self, count: int) -> int:
        """Skip some bytes, which must be there; returns where they begin."""
        at = self.position
        self.position += count
        if self.position > MOST_HEADER_BYTES:
            raise GGUFError(
                f"{self._name} claims a header of more than {MOST_HEADER_BYTES >> 20} MiB, "
                "larger than that of any model"
            )
        if self.position > len(self._data):
            raise GGUFTruncatedError(
                f"{self._name} is cut short inside its header ({self._size:,} bytes)"
            )
        return at

    def _array(self) -> Array:
        kind, length = self.scalar("I"), self.scalar("Q")
        if kind == _TEXT:
            self._skip_texts(length)
            return Array(length, None, is_text=True)
        code = self._code(kind)
        packed = self.raw(length * struct.calcsize(code))
        values = struct.unpack(f"<{length}{code}", packed) if length <= _MOST_KEPT else None
        return Array(length, values, is_text=False)

    def _skip_texts(self, count: int) -> None:
        self._skipped_texts += count
        if self._skipped_texts > _MOST_SKIPPED_TEXTS:
            raise GGUFError(f"{self._name} claims a list of {count:,} texts, more than any model")
        data, at, unpack = self._data, self.position, _LENGTH.unpack_from
        # The hot loop of a header: a vocabulary is 50,000 to 260,000 of these, its merges more.
        try:
            for _ in range(count):
                at += 8 + unpack(data, at)[0]
        except (struct.error, OverflowError):
            # The data ends here, or before a place so far away; so `skip` raises.
            at += 8
        self.skip(at - self.position)

    def _code(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise GGUFError(f"the header of {self._name} holds a value of the unknown type {kind}")
        return _SCALARS[kind]


def read_header(path: Path) -> GGUFHeader:
    """Read a model's header, and check that no file of it is missing or cut short.

    Raises GGUFError (GGUFTruncatedError for a file that is cut short), OSError.
    """
    first, *others = read_shards(path)
    return replace(
        first,
        size_bytes=first.size_bytes + sum(other.size_bytes for other in others),
        tensors_elsewhere=tuple(tensor for other in others for tensor in other.tensors),
    )


def read_tensor(header: GGUFHeader, tensor: TensorInfo) -> bytes:
    """A tensor's bytes as the file has them. Raises GGUFTruncatedError, OSError."""
    n_bytes = tensor.n_bytes or 0
    with header.path.open("rb") as file:
        file.seek(header.data_start + tensor.offset)
        data = file.read(n_bytes)
    if len(data) < n_bytes:
        raise GGUFTruncatedError(f"{header.path} was cut short while it was read")
    return data


def read_texts(header: GGUFHeader, key: str) -> list[bytes]:
    """The values of a list of texts, which headers do not keep; empty if there is no such list.

    Raises GGUFTruncatedError, OSError.
    """
    listed = header.get(key)
    if not isinstance(listed, Array) or not listed.is_text:
        return []
    start, end = header.spans[key]
    with header.path.open("rb") as file:
        file.seek(start)
        data = file.read(end - start)
    # Behind the key stand the type of the field, the type of its values, and how many there are.
    at = _LENGTH.size + len(key.encode()) + 4 + 4 + _LENGTH.size
    texts = []
    try:
        for _ in range(listed.length):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            texts.append(data[at : at + length])
            at += length
    except struct.error:
        raise GGUFTruncatedError(f"{header.path} was cut short while it was read") from None
    return texts


def read_shards(path: Path) -> list[GGUFHeader]:
    """The headers of all files of a split model in order, or of the one file.

    Raises GGUFError, OSError.
    """
    header = _read_file(path)
    shard = shard_of(path.name)
    _check_split(header, shard)
    if shard is None:
        return [header]
    paths = shard_paths(path)
    here = {other.number for other in map(shard_of, (p.name for p in paths)) if other}
    if shard.number != 1 and 1 in here:
        raise GGUFError(
            f"{path} is not the first of a model in {shard.count} files; give {shard.file(1)}"
        )
    missing = [number for number in range(1, shard.count + 1) if number not in here]
    if missing:
        named = ", ".join(map(shard.file, missing[:3]))
        more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
        raise GGUFError(f"{path} is part of a model in {shard.count} files; missing: {named}{more}")
    return [header, *map(_read_file, paths[1:])]


def _check_split(header: GGUFHeader, shard: Shard | None) -> None:
    """Raises GGUFError if the header says that this is another file of a split model than the name
    does; llama.cpp finds the other files by their names."""
    count, number = header.number("split.count"), header.number("split.no") + 1
    if count < 2 or (shard is not None and (shard.number, shard.count) == (number, count)):
        return
    name = f"…-{number:05d}-of-{count:05d}.gguf"
    raise GGUFError(
        f"{header.path} is part {number} of a model split into {count} files and not named so; "
        f"name it {name} beside the others, or join them with `llama-gguf-split --merge`, not cat"
    )


def _read_file(path: Path) -> GGUFHeader:
    """The header of one file, which must hold all of its tensors."""
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
    # Not mapped: reading a mapped file that was cut short meanwhile kills the process.
    with path.open("rb") as file:
        header = parse_as_read(lambda _, count: file.read(count), path, status.st_size, _READ)
    ends = (t.offset + t.n_bytes for t in header.tensors if t.n_bytes is not None)
    needed = header.data_start + max(ends, default=0)
    if needed > status.st_size:
        raise GGUFTruncatedError(
            f"{path} is cut short: its header promises {needed:,} bytes, "
            f"the file has {status.st_size:,}"
        )
    return header


def parse_as_read(
    read: Callable[[int, int], bytes], path: Path, size: int, first: int
) -> GGUFHeader:
    """Parse a header without reading much more than it: `read` returns so many bytes of the file,
    from a place on that follows what it returned before. It is asked for `first` bytes at first.

    Raises GGUFError, and what `read` raises.
    """
    data = b""
    while True:
        piece = read(len(data), min(max(3 * len(data), first), MOST_HEADER_BYTES))
        data += piece
        try:
            return parse_header(data, path, size)
        except GGUFTruncatedError:
            if not piece or len(data) >= size:
                raise


def parse_header(data: bytes, path: Path, size: int) -> GGUFHeader:
    """Parse a header from the first bytes of a file of `size` bytes.

    Raises GGUFTruncatedError if the bytes end inside the header, GGUFError if they are wrong.
    """
    cursor, n_tensors, n_fields = _open(data, path, size)
    fields: dict[str, Any] = {}
    spans: dict[str, tuple[int, int]] = {}
    for _ in range(n_fields):
        start = cursor.position
        key = cursor.text()
        fields[key] = cursor.value(cursor.scalar("I"))
        spans[key] = (start, cursor.position)
    _check_figures(fields, path)
    tensors = tuple(_tensor(cursor, path) for _ in range(n_tensors))
    alignment = fields.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not _is_whole(alignment) or alignment <= 0:
        raise GGUFError(f"{path} has an alignment of {_shown(alignment)}, no number of bytes")
    data_start = -(-cursor.position // alignment) * alignment
    return GGUFHeader(path, fields, tensors, data_start, size, spans)


def parse_beginning(data: bytes, path: Path, size: int) -> GGUFHeader | None:
    """A header without tensors, with the fields up to the vocabulary.

    None if the bytes end before the vocabulary, which writers put after the model's dimensions.
    """
    fields: dict[str, Any] = {}
    try:
        cursor, _, n_fields = _open(data, path, size)
        for _ in range(n_fields):
            key, kind = cursor.text(), cursor.scalar("I")
            if key == "tokenizer.ggml.tokens" and kind == _ARRAY:
                is_text = cursor.scalar("I") == _TEXT
                fields[key] = Array(cursor.scalar("Q"), None, is_text)
                _check_figures(fields, path)
                return GGUFHeader(path, fields, (), 0, size)
            fields[key] = cursor.value(kind)
    except GGUFError:
        pass
    return None


def _open(data: bytes, path: Path, size: int) -> tuple[_Cursor, int, int]:
    """A cursor at the first field, and the counts of tensors and fields."""
    if not data.startswith(MAGIC):
        first = data[:_MOST_SIGN]
        known = (f"it is {what}" for sign, what in _SIGNS if re.match(sign, first, re.DOTALL))
        begins = first[: len(MAGIC)].decode("latin-1")
        what = next(known, f"it begins with “{begins}”, not “GGUF”")
        raise GGUFError(f"{path} is not a GGUF file: {what}")
    cursor = _Cursor(data, str(path), size)
    cursor.skip(len(MAGIC))
    version = cursor.scalar("I")
    if version in _SWAPPED_VERSIONS:
        raise GGUFError(
            f"{path} has its bytes in the order of other processors (big-endian); take the "
            "little-endian file of the model"
        )
    if version not in _VERSIONS:
        raise GGUFError(f"{path} is a GGUF of version {version}; this program reads 2 and 3")
    n_tensors, n_fields = cursor.scalar("Q"), cursor.scalar("Q")
    if n_tensors > _MOST_TENSORS or n_fields > _MOST_FIELDS:
        raise GGUFError(
            f"{path} claims {n_tensors:,} tensors and {n_fields:,} fields, more than any model"
        )
    return cursor, n_tensors, n_fields


def _tensor(cursor: _Cursor, path: Path) -> TensorInfo:
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
    if n_bytes > _MOST_TENSOR_BYTES:
        raise GGUFError(f"{path} has a tensor of the shape {list(shape)}, larger than any disk")
    return TensorInfo(name, shape, type_name, offset, n_bytes)


def _check_figures(fields: Mapping[str, Any], path: Path) -> None:
    """Check the type and range of the fields that this program reads."""
    architecture = fields.get("general.architecture", "")
    if architecture != "" and not (
        isinstance(architecture, str) and _ARCHITECTURE.fullmatch(architecture)
    ):
        raise GGUFError(f"{path} names as its architecture {_shown(architecture)}, which is none")
    for figure, most in (_FIGURES | _FIGURES_PER_LAYER).items():
        key = f"{architecture}.{figure}"
        value = fields.get(key, 0)
        is_list = isinstance(value, Array) and not value.is_text and figure in _FIGURES_PER_LAYER
        for one in (value.values or ()) if is_list else (value,):
            if not _is_whole(one) or not 0 <= one <= most:
                raise GGUFError(
                    f"{path} gives as {key} {_shown(one)}, not a whole number up to {most:,}"
                )
    tokens = fields.get("tokenizer.ggml.tokens")
    if tokens is not None and not (isinstance(tokens, Array) and tokens.is_text):
        raise GGUFError(
            f"{path} gives as tokenizer.ggml.tokens {_shown(tokens)}, not a list of texts"
        )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """A value of a header, short enough for an error message."""
    if isinstance(value, Array):
        return f"a list of {value.length:,}{' texts' if value.is_text else ''}"
    return repr(value) if not isinstance(value, str) or len(value) <= 40 else repr(value[:40]) + "…"


def model_info(header: GGUFHeader) -> ModelInfo:
    """What the wire protocol says of a model."""
    same = {name: getattr(header, name) for name in ModelInfo.__struct_fields__ if name != "path"}
    return ModelInfo(path=str(header.path), **same)

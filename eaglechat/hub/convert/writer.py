"""Writes a draft's GGUF completely or not at all, in any of llama.cpp's types.

We do not use gguf's writer, because it takes each tensor as a whole and cannot take fields that are
already packed. Source of the format: ggml/docs/gguf.md of llama.cpp.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

import filelock
import gguf
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type
from gguf import LlamaFileType as FileType

from eaglechat.engine.llama.quantise import QuantiseError, quantise
from eaglechat.gguf.header import GGUFError, GGUFHeader, read_header
from eaglechat.gguf.preflight import DRAFT_ARCHITECTURE
from eaglechat.hub.errors import ConversionError

DIRECT_TYPES = {
    "f32": (Type.F32, FileType.ALL_F32),
    "f16": (Type.F16, FileType.MOSTLY_F16),
    "bf16": (Type.BF16, FileType.MOSTLY_BF16),
    "q8_0": (Type.Q8_0, FileType.MOSTLY_Q8_0),
}
"""Types written here, byte for byte as llama.cpp's converter writes them."""

QUANTISED_TYPES = {
    "q6_k": FileType.MOSTLY_Q6_K,
    "q5_k_m": FileType.MOSTLY_Q5_K_M,
    "q5_k_s": FileType.MOSTLY_Q5_K_S,
    "q5_1": FileType.MOSTLY_Q5_1,
    "q5_0": FileType.MOSTLY_Q5_0,
    "q4_k_m": FileType.MOSTLY_Q4_K_M,
    "q4_k_s": FileType.MOSTLY_Q4_K_S,
    "q4_1": FileType.MOSTLY_Q4_1,
    "q4_0": FileType.MOSTLY_Q4_0,
    "iq4_nl": FileType.MOSTLY_IQ4_NL,
    "iq4_xs": FileType.MOSTLY_IQ4_XS,
    "q3_k_l": FileType.MOSTLY_Q3_K_L,
    "q3_k_m": FileType.MOSTLY_Q3_K_M,
    "q3_k_s": FileType.MOSTLY_Q3_K_S,
    "q2_k": FileType.MOSTLY_Q2_K,
}
"""Types that llama.cpp writes: it quantises a GGUF that holds the checkpoint's own type."""

TYPES = (*DIRECT_TYPES, *QUANTISED_TYPES)

_T = gguf.GGUFValueType
_FORMATS = {_T.UINT32: "<I", _T.INT32: "<i", _T.UINT64: "<Q", _T.FLOAT32: "<f", _T.BOOL: "<?"}
_VERSION = 3
_ALIGNMENT = 32


@dataclass(frozen=True)
class ConversionProgress:
    """Progress of one stage, in bytes of the file that the stage processes. `total` is 0 while the
    draft is measured."""

    stage: Literal["converting", "quantising", "measuring"]
    done: int
    total: int


@dataclass(frozen=True)
class OutputTensor:
    """A tensor to write. `chunks` yields its rows in order, already in `type`."""

    name: str
    shape: tuple[int, ...]
    """In numpy's order; GGUF stores the dimensions reversed."""
    type: gguf.GGMLQuantizationType
    chunks: Callable[[], Iterator[npt.NDArray[Any]]]

    @property
    def n_bytes(self) -> int:
        block, block_bytes = GGML_QUANT_SIZES[self.type]
        return prod(self.shape) // block * block_bytes


def check_out(out: Path) -> None:
    """Raise ConversionError unless `out` is free or holds an EAGLE-3 draft, which is replaced."""
    if not out.parent.is_dir():
        raise ConversionError(f"the directory {out.parent} does not exist")
    if not out.exists():
        return
    if out.is_dir():
        raise ConversionError(f"{out} is a directory; name the file to write in it")
    try:
        replaceable = read_header(out).architecture == DRAFT_ARCHITECTURE
    except GGUFError:
        replaceable = False
    if not replaceable:
        raise ConversionError(
            f"{out} exists and is not an EAGLE-3 draft; choose another name, or delete it first"
        )


def write_draft(
    out: Path,
    type: str,
    fields: Sequence[bytes],
    tensors: Sequence[OutputTensor],
    progress: Callable[[ConversionProgress], None],
    *,
    last: Callable[[Path], None] = lambda _: None,
) -> None:
    """Write a draft as `type`. For one of QUANTISED_TYPES, llama.cpp quantises these tensors.

    `progress` is called at least a few times per second; an exception it raises stops the writing
    and is passed on. `last` gets the complete file before it is given its name. `out` appears when
    it is complete; otherwise what was there stays.
    Raises ConversionError, OSError.
    """
    with _replaced_when_complete(out) as (part, unquantised):
        if type in DIRECT_TYPES:
            _write(part, fields, tensors, progress)
            last(part)
            return
        # No mixture is larger than all tensors in Q8_0.
        block, block_bytes = GGML_QUANT_SIZES[Type.Q8_0]
        largest = sum(prod(tensor.shape) for tensor in tensors) // block * block_bytes
        _write(unquantised, fields, tensors, progress, spare=largest)
        try:
            quantise(
                unquantised,
                part,
                QUANTISED_TYPES[type],
                lambda done, total: progress(ConversionProgress("quantising", done, total)),
            )
        except QuantiseError as error:
            raise ConversionError(str(error)) from error
        size = part.stat().st_size
        progress(ConversionProgress("quantising", size, size))
        last(part)


@contextmanager
def _replaced_when_complete(out: Path) -> Iterator[tuple[Path, Path]]:
    """Two paths to write to. The first is renamed to `out` at the end; both are removed on failure.

    A killed process leaves its files behind; the next conversion to `out` removes them.
    """
    part = out.with_name(out.name + ".part")
    unquantised = out.with_name(out.name + ".part.unquantised")
    lock = filelock.FileLock(out.with_name(out.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ConversionError(f"another conversion is writing {out}") from None
    try:
        part.unlink(missing_ok=True)
        unquantised.unlink(missing_ok=True)
        yield part, unquantised
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
        unquantised.unlink(missing_ok=True)
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)


def _write(
    path: Path,
    fields: Sequence[bytes],
    tensors: Sequence[OutputTensor],
    progress: Callable[[ConversionProgress], None],
    spare: int = 0,
) -> None:
    """Write a GGUF if the disk has room for it and `spare` bytes more."""
    beginning = _header(fields, tensors)
    total = sum(tensor.n_bytes for tensor in tensors)
    needed = len(beginning) + sum(_aligned(tensor.n_bytes) for tensor in tensors) + spare
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise ConversionError(
            f"the draft needs {needed / 1e6:,.0f} MB on the disk of {path.parent}, which has "
            f"{free / 1e6:,.0f} MB free: {(needed - free) / 1e6:,.0f} MB short"
        )
    done = 0
    progress(ConversionProgress("converting", 0, total))
    with path.open("wb") as file:
        file.write(beginning)
        for tensor in tensors:
            for chunk in tensor.chunks():
                done += file.write(chunk.data.cast("B"))
                progress(ConversionProgress("converting", done, total))
            file.write(b"\0" * (_aligned(tensor.n_bytes) - tensor.n_bytes))


def _header(fields: Sequence[bytes], tensors: Sequence[OutputTensor]) -> bytes:
    """Everything before the first tensor's data."""
    packed = bytearray(b"GGUF" + struct.pack("<IQQ", _VERSION, len(tensors), len(fields)))
    packed += b"".join(fields)
    offset = 0
    for tensor in tensors:
        packed += _text(tensor.name)
        packed += struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape[::-1])
        packed += struct.pack("<IQ", tensor.type, offset)
        offset += _aligned(tensor.n_bytes)
    return bytes(packed).ljust(_aligned(len(packed)), b"\0")


def _aligned(n_bytes: int) -> int:
    """`n_bytes` rounded up to GGUF's alignment."""
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT


def pack(
    key: str, value: Any, kind: gguf.GGUFValueType, element: gguf.GGUFValueType = _T.STRING
) -> bytes:
    """A metadata field as it is stored; `element` is the type of an array's elements.

    Raises ConversionError if the value does not fit its type.
    """
    packed = _text(key) + struct.pack("<I", kind)
    try:
        if kind is _T.ARRAY:
            packed += struct.pack("<IQ", element, len(value))
            return packed + b"".join(_value(item, element) for item in value)
        return packed + _value(value, kind)
    except (struct.error, OverflowError) as error:
        shown = str(value)[:40]
        raise ConversionError(f"{key} cannot be {shown}: a GGUF has no room for it") from error


def _value(value: Any, kind: gguf.GGUFValueType) -> bytes:
    return _text(value) if kind is _T.STRING else struct.pack(_FORMATS[kind], value)


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8")
    return struct.pack("<Q", len(encoded)) + encoded


def fields_as_stored(header: GGUFHeader, prefix: str) -> list[bytes]:
    """The packed fields of a GGUF whose keys begin with `prefix`, copied byte for byte."""
    fields = []
    with header.path.open("rb") as file:
        for key, (start, end) in header.spans.items():
            if key.startswith(prefix):
                file.seek(start)
                fields.append(file.read(end - start))
    return fields

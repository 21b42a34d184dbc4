"""Writes a GGUF a few rows at a time.

Our own writer because gguf's takes a whole tensor at once, and has no way to take fields that are
packed already. Source of the format: ggml/docs/gguf.md of llama.cpp.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO

import gguf
import numpy.typing as npt

_VERSION = 3
_ALIGNMENT = 32


@dataclass(frozen=True)
class OutputTensor:
    """A tensor to write: its bytes come from `chunks`, rows in order."""

    name: str
    shape: tuple[int, ...]
    """As numpy has it: GGUF writes the dimensions in reverse."""
    type: gguf.GGMLQuantizationType
    chunks: Callable[[], Iterator[npt.NDArray[Any]]]

    @property
    def n_bytes(self) -> int:
        block, block_bytes = gguf.GGML_QUANT_SIZES[self.type]
        return prod(self.shape) // block * block_bytes


def header(fields: Sequence[bytes], tensors: Sequence[OutputTensor]) -> bytes:
    """Everything before the first tensor's data."""
    packed = bytearray(b"GGUF" + struct.pack("<IQQ", _VERSION, len(tensors), len(fields)))
    packed += b"".join(fields)
    offset = 0
    for tensor in tensors:
        name = tensor.name.encode()
        packed += struct.pack("<Q", len(name)) + name
        packed += struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape[::-1])
        packed += struct.pack("<IQ", tensor.type, offset)
        offset += aligned(tensor.n_bytes)
    return bytes(packed).ljust(aligned(len(packed)), b"\0")


def aligned(n_bytes: int) -> int:
    """`n_bytes` rounded up to where the next thing in a GGUF begins."""
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT


def write_tensors(
    file: BinaryIO, tensors: Sequence[OutputTensor], on_bytes: Callable[[int], None]
) -> None:
    """Write the data after the header; `on_bytes` gets the size of each piece written."""
    for tensor in tensors:
        written = 0
        for chunk in tensor.chunks():
            written += file.write(chunk.data.cast("B"))
            on_bytes(chunk.nbytes)
        file.write(b"\0" * (aligned(written) - written))

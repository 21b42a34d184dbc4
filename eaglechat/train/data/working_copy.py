"""A BF16 copy of a quantised target, to read features and write chats with.

On a processor with BF16 instructions llama.cpp prefills several times faster from BF16 than from
most quantised types (SmolLM2-135M, two cores, features included: Q4_1 390 tokens/s, Q8_0 760,
F16 910, BF16 1350). The weights are the same; what differs is the rounding of activations.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from math import prod
from pathlib import Path

from gguf import LlamaFileType

from eaglechat.engine.llama import backend
from eaglechat.engine.llama.quantise import QuantiseError, quantise
from eaglechat.gguf.header import GGUFError, GGUFHeader, read_header

_LARGEST_BYTES = 8 << 30
_UNQUANTISED = ("F32", "F16", "BF16")


def working_copy(
    target: GGUFHeader,
    directory: Path,
    *,
    fast_bfloat16: bool,
    on_progress: Callable[[int, int], None],
) -> Path:
    """The file to run the target from: a copy in `directory`, or the target where none pays.

    `on_progress` gets bytes written and their total; what it raises comes out of here.
    """
    n_bytes = sum(prod(tensor.shape) for tensor in target.tensors) * 2
    if (
        not fast_bfloat16
        or target.quantization in _UNQUANTISED
        or any(device.is_gpu for device in backend.devices())
        or n_bytes > min(_LARGEST_BYTES, shutil.disk_usage(directory).free // 4)
    ):
        return target.path
    copy = directory / "target-bf16.gguf"
    if _is_whole(copy):
        return copy
    part = copy.with_suffix(".part")
    try:
        quantise(target.path, part, LlamaFileType.MOSTLY_BF16, on_progress)
    except QuantiseError:
        return target.path
    part.replace(copy)
    return copy


def _is_whole(path: Path) -> bool:
    try:
        return bool(read_header(path).architecture)
    except (OSError, GGUFError):
        return False

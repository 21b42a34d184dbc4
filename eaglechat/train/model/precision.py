"""What computes fastest here: the device, and the type of its matrix products."""

from __future__ import annotations

import time
from typing import Any

import torch

_WORTH_IT = 1.3
_SIZE = 768


def best_device() -> Any:
    """The first CUDA device, else a Mac's GPU, else the processor."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    # All operations of training have kernels for it (native_functions.yaml of torch 2.13).
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def best_type(device: Any) -> Any:
    """bfloat16 where the device surely multiplies matrices of it faster than of float32, else
    float32."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    if device.type == "mps":
        # Before macOS 14 torch refuses bfloat16 there.
        return torch.float32
    slow, fast = (_seconds(dtype) for dtype in (torch.float32, torch.bfloat16))
    return torch.bfloat16 if slow > fast * _WORTH_IT else torch.float32


def _seconds(dtype: Any) -> float:
    """The shortest of some products: neighbours on the machine only lengthen them."""
    matrix = torch.ones(_SIZE, _SIZE, dtype=dtype)
    times = []
    for _ in range(8):
        started = time.perf_counter()
        matrix @ matrix
        times.append(time.perf_counter() - started)
    return min(times)

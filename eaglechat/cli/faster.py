"""The doctor's advice on speed: a build for the GPU, other weights."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from eaglechat.gguf.header import GGUFHeader
from eaglechat.hub.local.pair import Pair

SLOW_TYPES = ("Q4_1", "Q5_1")
"""Types for which llama.cpp has no CPU kernel for several rows at once."""
_SAID = {"MTL": "Metal"}
"""The usual names of backends that llama.cpp calls otherwise."""


def advice(
    has_gpu: bool, backends: Sequence[str], targets: Sequence[tuple[Pair, GGUFHeader]]
) -> Iterator[str]:
    """Sentences, with the largest gain first. `has_gpu` is whether llama.cpp uses
    a GPU of this machine."""
    if has_gpu:
        return
    name, wanted = gpu_of_machine() or ("", None)
    if wanted is not None and wanted not in backends:
        yield (
            f"there is {name}, and this llama-cpp-python was not built for "
            f"{_SAID.get(wanted, wanted)}; docs/install.md says how to install one that is"
        )
    for pair, target in targets:
        if target.quantization in SLOW_TYPES and not pair.reencode:
            yield (
                f"the target of {pair.name} is in {target.quantization}, which the CPU verifies "
                "token by token; in Q4_0, Q4_K_M or Q8_0 a draft costs less"
            )


def gpu_of_machine(root: Path = Path("/")) -> tuple[str, str] | None:
    """A GPU that the system reports, and the backend of llama.cpp for it."""
    if (root / "proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi"):
        return "an NVIDIA GPU", "CUDA"
    if (root / "dev/kfd").exists():
        return "an AMD GPU", "ROCm"
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return "an Apple GPU", "MTL"
    return None

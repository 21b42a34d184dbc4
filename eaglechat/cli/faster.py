"""What would make this machine faster, for the doctor: a build for its GPU, other weights."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from eaglechat.gguf.header import GGUFHeader
from eaglechat.hub.local.pair import Pair

SLOW_TYPES = ("Q4_1", "Q5_1")
"""Types for which llama.cpp has no kernel for several rows at once on a processor."""


def advice(
    gpus: bool, backends: Sequence[str], targets: Sequence[tuple[Pair, GGUFHeader]]
) -> Iterator[str]:
    """Sentences, the one that gains most first; `gpus` is whether llama.cpp uses one."""
    if not gpus and (found := gpu_of_machine()) is not None:
        name, wanted = found
        if wanted not in backends:
            yield (
                f"there is {name}, and this llama-cpp-python was not built for {wanted}; "
                "docs/gpu.md says how to install one that is"
            )
    if gpus:
        return
    for pair, target in targets:
        if target.quantization in SLOW_TYPES and not pair.reencode:
            yield (
                f"the target of {pair.name} is in {target.quantization}, which processors verify "
                "token by token; in Q4_0, Q4_K_M or Q8_0 a draft costs less"
            )


def gpu_of_machine(root: Path = Path("/")) -> tuple[str, str] | None:
    """A GPU that the system knows, and the backend of llama.cpp that is made for it."""
    if (root / "proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi"):
        return "an NVIDIA GPU", "CUDA"
    if (root / "dev/kfd").exists():
        return "an AMD GPU", "HIP"
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return "an Apple GPU", "MTL"
    return None

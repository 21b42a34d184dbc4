"""The doctor's advice on speed: a build for the GPU, other weights, a newer llama.cpp."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2
from huggingface_hub import constants
from packaging.requirements import Requirement
from packaging.version import Version

from eaglechat.gguf.header import GGUFHeader
from eaglechat.hub.local.pair import Pair

SLOW_TYPES = ("Q4_1", "Q5_1")
"""Types for which llama.cpp has no CPU kernel for several rows at once."""
_SAID = {"MTL": "Metal"}
"""The usual names of backends that llama.cpp calls otherwise."""
_INDEX = "https://pypi.org/simple/"
_ACCEPTED = "application/vnd.pypi.simple.v1+json"
_PATIENCE_S = 2.0


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


def newer_release(installed: str, usable: str) -> str | None:
    """The newest release of a package that meets the requirement `usable`, if it is newer than the
    one installed. None also if the package index gives no answer or HF_HUB_OFFLINE is set.
    Source: PEP 691."""
    if constants.HF_HUB_OFFLINE:
        return None
    requirement = Requirement(usable)
    try:
        answer = httpx2.get(
            f"{_INDEX}{requirement.name}/",
            headers={"Accept": _ACCEPTED},
            timeout=_PATIENCE_S,
            follow_redirects=True,
        )
        answer.raise_for_status()
        versions = [Version(version) for version in answer.json()["versions"]]
    except (httpx2.HTTPError, ImportError, OSError, ValueError, KeyError, TypeError):
        return None
    newest = max(requirement.specifier.filter(versions), default=None)
    return str(newest) if newest is not None and newest > Version(installed) else None

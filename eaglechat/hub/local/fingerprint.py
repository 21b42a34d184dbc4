"""The machine and the files that figures were measured with, and what else ran meanwhile."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from eaglechat.machine import cpu_info

_ROOT = Path("/")
_BLOCK = 1 << 20
_SMI_S = 10.0


class Witness:
    """Sees from its making on what other programs take of the CPUs."""

    def __init__(self) -> None:
        self._at, self._busy, self._own = time.monotonic(), _busy_s(), _own_s()

    def others(self) -> float:
        """As a share of all, so far. The engine has to run still: what it took is ours."""
        seconds = (time.monotonic() - self._at) * (psutil.cpu_count() or 1)
        return max(0.0, (_busy_s() - self._busy - (_own_s() - self._own)) / (seconds or 1.0))


def load() -> float:
    """The processes that wanted a CPU in the last minute, on average; our own too."""
    return psutil.getloadavg()[0]


def _busy_s() -> float:
    """Seconds for which all CPUs together have computed."""
    times = psutil.cpu_times()
    names = ("user", "system", "nice", "irq", "softirq", "steal")
    return sum(getattr(times, name, 0.0) for name in names)


def _own_s() -> float:
    """Seconds for which this process and those that it started have computed."""
    own, total = psutil.Process(), 0.0
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    times = own.cpu_times()
    # Those that have ended.
    return total + getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)


def machine(root: Path = _ROOT) -> Iterator[tuple[str, str]]:
    """The machine in pairs of a name and what it is; what the system does not tell is left out."""
    yield "System", f"{platform.system()} {platform.release()}, {platform.machine()}"
    n_cpus = psutil.cpu_count() or 1
    name = cpu_info("model name", root) or platform.processor()
    yield "CPU", f"{name}, {n_cpus} logical CPUs".removeprefix(", ")
    governors = {
        file.read_text().strip()
        for file in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    }
    if governors:
        yield "Governor", ", ".join(sorted(governors))


def gpus() -> list[str]:
    """NVIDIA GPUs with their power limit and PCIe link, as nvidia-smi tells them; none without
    it."""
    fields = "name,power.limit,pcie.link.gen.max,pcie.link.width.current"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=_SMI_S, check=True, env=os.environ
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    found = []
    for line in said.splitlines():
        name, *rest = (part.strip() for part in line.split(","))
        if len(rest) == 3:
            limit, generation, width = rest
            found.append(f"{name}, power limit {limit}, PCIe {generation}.0 x{width}")
    return found


def sha256(path: Path) -> str:
    """Of a file. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()

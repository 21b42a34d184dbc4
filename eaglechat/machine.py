"""What this process may use of its machine: CPU cores, and RAM.

Linux control groups (v1 and v2) limit both for containers and services.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from eaglechat.wire.protocol import Memory

_ROOT = Path("/")
_SLOW_BELOW = 0.8
"""A core with less than this share of the fastest core's capacity is slow. The fast cores of one
CPU may differ too, but by less."""


@dataclass(frozen=True)
class ThreadChoice:
    """The default number of threads, and the numbers it follows from."""

    logical_cpus: int
    """Those that this process may run on."""
    cores: int
    """The physical cores of these."""
    fast_cores: int
    quota: float | None
    """How many CPUs' worth of time a control group grants; None without a limit."""

    @property
    def count(self) -> int:
        if self.quota is None:
            return self.fast_cores
        return max(1, min(self.fast_cores, int(self.quota)))

    @property
    def reason(self) -> str:
        """Why it is `count`."""
        text = f"{_count(self.logical_cpus, 'logical CPU')} on {_count(self.cores, 'core')}"
        if self.fast_cores < self.cores:
            text += f", {self.fast_cores} of them fast"
        if self.count < self.fast_cores:
            return f"{text}; a control group grants {self.quota:g} of them"
        return f"one for each {'fast ' * (self.fast_cores < self.cores)}core it may use ({text})"


def choose_threads(root: Path = _ROOT) -> ThreadChoice:
    """The default number of llama.cpp's threads: the fast physical cores this process may use.

    llama.cpp's threads wait for each other after every operation, so all of them wait for a second
    thread on one core, a slow core, or a thread without CPU time. `/proc` and `/sys` are read
    below `root`.
    """
    if hasattr(os, "sched_getaffinity"):
        allowed = set(os.sched_getaffinity(0))
    else:
        allowed = set(range(os.cpu_count() or 1))
    topology = root / "sys/devices/system/cpu"
    cores = _cores(allowed, topology)
    if cores:
        fast = _cores(_fast(allowed, topology), topology)
        return ThreadChoice(len(allowed), len(cores), len(fast), cpu_quota(root))
    # macOS and Windows have no such files.
    import psutil

    n_fast = n_cores = min(psutil.cpu_count(logical=False) or len(allowed), len(allowed))
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "hw.perflevel0.physicalcpu"]
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5)
            n_fast = min(int(done.stdout), n_cores)
    return ThreadChoice(len(allowed), n_cores, n_fast, None)


def _cores(cpus: Iterable[int], topology: Path) -> set[str]:
    """The physical cores of these logical CPUs, each named by the list of its CPUs."""
    try:
        return {(topology / f"cpu{n}/topology/thread_siblings_list").read_text() for n in cpus}
    except OSError:
        return set()


def _fast(cpus: set[int], topology: Path) -> set[int]:
    """The CPUs of the fast kind; all of them if there is one kind or the kinds are unknown."""
    with suppress(OSError):
        performance = _cpu_list((topology.parent.parent / "cpu_core/cpus").read_text())
        return cpus & performance or cpus
    with suppress(OSError, ValueError):
        capacity = {n: int((topology / f"cpu{n}/cpu_capacity").read_text()) for n in cpus}
        fastest = max(capacity.values())
        return {n for n in cpus if capacity[n] >= _SLOW_BELOW * fastest}
    return cpus


def _cpu_list(text: str) -> set[int]:
    """The numbers in a list of the kernel, such as 0-3,8."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def memory(root: Path = _ROOT) -> Memory:
    """The RAM that this process may use; nothing of GPUs."""
    import psutil

    ram = psutil.virtual_memory()
    granted = [*memory_limits(root)]
    return Memory(
        ram=min(ram.total, *(limit for limit, _ in granted)),
        ram_available=min(ram.available, *(max(0, limit - used) for limit, used in granted)),
    )


def cpu_info(field: str, root: Path = _ROOT) -> str:
    """A field of the first processor, empty where Linux does not tell it."""
    for line in _read(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return ""


def cpu_quota(root: Path = _ROOT) -> float | None:
    """How many CPUs' worth of time control groups grant this process; None without a limit."""
    quotas = []
    for folder in _control_groups("cpu", root):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if not quota:
            quota = _read(folder / "cpu.cfs_quota_us")
            period = _read(folder / "cpu.cfs_period_us")
        # Unlimited is "max" in v2 and -1 in v1.
        if quota.isdigit() and period.isdigit():
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limits(root: Path = _ROOT) -> Iterator[tuple[int, int]]:
    """Of each control group that limits this process: the bytes it grants, and those in use. The
    page cache of files counts as free: the kernel drops it where memory is needed."""
    for folder in _control_groups("memory", root):
        # Of v2 and of v1; the latter's own figures leave out the groups below.
        for limit, usage, cache in (
            ("memory.max", "memory.current", r"(?:in)?active_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", r"total_(?:in)?active_file"),
        ):
            if (granted := _read(folder / limit)).isdigit():
                in_use = _read(folder / usage)
                files = re.findall(rf"^{cache} (\d+)$", _read(folder / "memory.stat"), re.MULTILINE)
                used = int(in_use) - sum(map(int, files)) if in_use.isdigit() else 0
                yield int(granted), max(0, used)


def _control_groups(controller: str, root: Path) -> Iterator[Path]:
    """The folders of this process' group and of all above it: the limits of each apply.

    In a container the path may be the host's, of which only the top is mounted.
    """
    mounts = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            tops = [mounts, mounts / "unified"]
        elif controller in controllers.split(","):
            tops = [mounts / controllers, mounts / controller]
        else:
            continue
        parts = Path(path.lstrip("/")).parts
        for top in tops:
            for depth in range(len(parts), -1, -1):
                yield top.joinpath(*parts[:depth])


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""

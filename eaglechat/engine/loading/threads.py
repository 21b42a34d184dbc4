"""How many threads llama.cpp gets: as many as there are fast physical cores this process may use.

Its threads wait for each other after every operation. A second thread on a core, a slow core, or a
thread without processor time therefore holds all the others up.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from eaglechat.engine.loading import control_groups

_SLOW_BELOW = 0.8
"""A core with less of the fastest one's capacity is a slow one; favoured cores differ by less."""


@dataclass(frozen=True)
class ThreadChoice:
    """The default number of threads, and what it follows from."""

    processors: int
    """Logical ones this process may run on."""
    cores: int
    """Physical ones among them."""
    fast_cores: int
    quota: float | None
    """Processors' worth of time a control group grants, if it limits that."""

    @property
    def count(self) -> int:
        if self.quota is None:
            return self.fast_cores
        return max(1, min(self.fast_cores, int(self.quota)))

    @property
    def reason(self) -> str:
        """In words, after the count."""
        text = f"{_count(self.processors, 'processor')} on {_count(self.cores, 'core')}"
        if self.fast_cores < self.cores:
            text += f", {self.fast_cores} of them fast"
        if self.count < self.fast_cores:
            return f"{text}; a control group grants {self.quota:g} of them"
        return f"one for each {'fast ' * (self.fast_cores < self.cores)}core it may use ({text})"


def choose(root: Path = control_groups.ROOT) -> ThreadChoice:
    """The default on this machine; `root` is where /proc and /sys are looked for."""
    allowed = _allowed()
    topology = root / "sys/devices/system/cpu"
    cores = _cores(allowed, topology)
    if not cores:
        return _without_topology(len(allowed))
    fast = _cores(_fast(allowed, topology), topology)
    return ThreadChoice(len(allowed), len(cores), len(fast), control_groups.cpu_quota(root))


def _allowed() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _cores(processors: Iterable[int], topology: Path) -> set[str]:
    """The physical cores of some processors, each by the list of its processors."""
    cores = set()
    for processor in processors:
        try:
            cores.add((topology / f"cpu{processor}/topology/thread_siblings_list").read_text())
        except OSError:
            return set()
    return cores


def _fast(processors: set[int], topology: Path) -> set[int]:
    """Those of the fast kind; all where there is one kind, or none can be told."""
    try:
        performance = _numbers((topology.parent.parent / "cpu_core/cpus").read_text())
    except OSError:
        performance = _by_capacity(processors, topology)
    return processors & performance or processors


def _by_capacity(processors: set[int], topology: Path) -> set[int]:
    try:
        capacity = {p: int((topology / f"cpu{p}/cpu_capacity").read_text()) for p in processors}
    except (OSError, ValueError):
        return processors
    fastest = max(capacity.values())
    return {p for p in processors if capacity[p] >= _SLOW_BELOW * fastest}


def _numbers(text: str) -> set[int]:
    """A kernel list such as 0-3,8."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _without_topology(processors: int) -> ThreadChoice:
    """macOS and Windows."""
    cores = min(psutil.cpu_count(logical=False) or processors, processors)
    fast = min(_mac_fast_cores() or cores, cores) if sys.platform == "darwin" else cores
    return ThreadChoice(processors, cores, fast, None)


def _mac_fast_cores() -> int | None:
    command = ["sysctl", "-n", "hw.perflevel0.physicalcpu"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5)
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"

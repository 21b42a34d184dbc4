"""The default number of threads, on machines made of files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from eaglechat import machine as machine_module
from eaglechat.machine import (
    ThreadChoice,
    choose_threads,
    cpu_quota,
    memory,
    memory_limits,
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


class Machine:
    """A root with the files of /proc and /sys that are read."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._monkeypatch = monkeypatch

    def write(self, file: str, text: str) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def cores(self, *siblings: str, capacities: Sequence[int] = ()) -> None:
        """Logical CPUs by their siblings lists; all may be used."""
        for cpu, text in enumerate(siblings):
            folder = f"sys/devices/system/cpu/cpu{cpu}"
            self.write(f"{folder}/topology/thread_siblings_list", text)
            if capacities:
                self.write(f"{folder}/cpu_capacity", str(capacities[cpu]))
        self.allow(range(len(siblings)))

    def allow(self, cpus: Sequence[int]) -> None:
        self._monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cpus), raising=False)

    def choose(self) -> ThreadChoice:
        return choose_threads(self.root)


def test_two_logical_cpus_of_a_core_count_once(machine: Machine) -> None:
    machine.cores("0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7")
    assert machine.choose().count == 4
    assert machine.choose().reason == "one for each core it may use (8 logical CPUs on 4 cores)"


def test_only_cpus_this_process_may_run_on_count(machine: Machine) -> None:
    machine.cores("0,2", "1,3", "0,2", "1,3")
    machine.allow([0, 2])
    assert machine.choose().count == 1


def test_slow_cores_hold_the_fast_ones_up_and_stay_out(machine: Machine) -> None:
    machine.cores("0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7")
    machine.write("sys/devices/cpu_core/cpus", "0-3")
    chosen = machine.choose()
    assert chosen.count == 2
    assert "fast core" in chosen.reason
    machine.allow([5, 6, 7])
    assert machine.choose().count == 3


def test_cores_of_little_capacity_are_slow_and_favoured_ones_are_not_alone(
    machine: Machine,
) -> None:
    machine.cores("0", "1", "2", "3", "4", "5", capacities=[1024, 1000, 970, 960, 420, 420])
    assert machine.choose().count == 4


@pytest.mark.parametrize(
    ("group", "files"),
    [
        ("0::/app/chat", {"app/chat/cpu.max": "max 100000", "app/cpu.max": "250000 100000"}),
        ("0::/", {"cpu.max": "250000 100000"}),
        (
            "4:cpu,cpuacct:/docker/0a1b",
            {"cpu,cpuacct/cpu.cfs_quota_us": "25000", "cpu,cpuacct/cpu.cfs_period_us": "10000"},
        ),
    ],
    ids=["a group above", "a container", "version 1, the host's path"],
)
def test_a_control_groups_quota_bounds_the_threads(
    machine: Machine, group: str, files: dict[str, str]
) -> None:
    machine.cores("0", "1", "2", "3")
    machine.write("proc/self/cgroup", group)
    for name, text in files.items():
        machine.write(f"sys/fs/cgroup/{name}", text)
    assert machine.choose().count == 2
    assert "grants 2.5 of them" in machine.choose().reason


def test_less_than_one_cpu_still_gets_a_thread(machine: Machine) -> None:
    machine.cores("0", "1")
    machine.write("proc/self/cgroup", "0::/")
    machine.write("sys/fs/cgroup/cpu.max", "50000 100000")
    assert machine.choose().count == 1


def test_no_limit_is_none(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "0::/\n3:cpu:/\n2:memory:/")
    machine.write("sys/fs/cgroup/cpu.max", "max 100000")
    machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    machine.write("sys/fs/cgroup/memory.max", "max")
    assert (cpu_quota(machine.root), [*memory_limits(machine.root)]) == (None, [])
    assert cpu_quota(machine.root / "not there") is None


GIB = 1 << 30


@pytest.mark.parametrize(
    ("group", "files"),
    [
        (
            "5:memory:/service",
            {
                "memory/memory.limit_in_bytes": 8 * GIB,
                "memory/memory.usage_in_bytes": 7 * GIB,
                "memory/memory.stat": f"active_file 1\ntotal_inactive_file {GIB}",
                "memory/service/memory.limit_in_bytes": 4 * GIB,
                "memory/service/memory.usage_in_bytes": 3 * GIB,
                "memory/service/memory.stat": f"total_active_file {GIB}\ntotal_inactive_file 1",
            },
        ),
        (
            "0::/app/chat",
            {
                "app/memory.max": 4 * GIB,
                "app/memory.current": 5 * GIB,
                "app/memory.stat": f"anon 7\nactive_file {GIB}\ninactive_file {2 * GIB}",
                "app/chat/memory.max": "max",
                "app/chat/memory.current": 3 * GIB,
            },
        ),
    ],
    ids=["version 1", "version 2"],
)
def test_memory_that_a_control_group_uses_is_not_available(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, group: str, files: dict[str, object]
) -> None:
    """The tightest limit holds; the page cache is free."""
    machine.write("proc/self/cgroup", group)
    for name, text in files.items():
        machine.write(f"sys/fs/cgroup/{name}", str(text))
    ram = SimpleNamespace(total=64 * GIB, available=32 * GIB)
    monkeypatch.setattr("psutil.virtual_memory", lambda: ram)

    found = memory(root=machine.root)

    assert found.ram == 4 * GIB
    assert GIB <= found.ram_available <= 2 * GIB


@pytest.mark.parametrize(("answer", "count"), [("4", 4), ("", 10)])
def test_a_mac_is_asked_for_its_fast_cores(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, answer: str, count: int
) -> None:
    machine.allow(range(10))
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 10)
    monkeypatch.setattr(machine_module, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(subprocess, "run", lambda *_a, **_k: SimpleNamespace(stdout=answer))
    assert machine.choose().count == count

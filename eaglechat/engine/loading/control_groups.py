"""What a container or a service may use of the machine, from Linux control groups (v1 and v2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def cpu_quota(root: Path = ROOT) -> float | None:
    """Processors' worth of time this process may use; None where nothing limits it."""
    quotas = [quota for folder in _folders("cpu", root) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def memory_limit(root: Path = ROOT) -> int | None:
    """Bytes this process may use; None where nothing limits it."""
    limits = [
        int(text)
        for folder in _folders("memory", root)
        for name in ("memory.max", "memory.limit_in_bytes")
        if (text := _read(folder / name)).isdigit()
    ]
    return min(limits, default=None)


def _quota(folder: Path) -> float | None:
    quota, _, period = _read(folder / "cpu.max").partition(" ")
    if not quota:
        quota = _read(folder / "cpu.cfs_quota_us")
        period = _read(folder / "cpu.cfs_period_us")
    # Unlimited is "max" in v2 and -1 in v1.
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _folders(controller: str, root: Path) -> Iterator[Path]:
    """This process' group and all above it: a limit of any of them holds.

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

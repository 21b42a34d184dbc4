"""What llama.cpp does without on this machine because it crashes with it.

An engine process may crash: its client starts it again and leaves more out (`links/base.py`). A
program that has llama.cpp in its own process must not crash, so child processes try it first, once
for each build of llama.cpp and each CPU. `crash_memory.py` keeps what was found.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from eaglechat import own_python
from eaglechat.engine import crash_memory
from eaglechat.engine.crash_memory import Workaround
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.bindings import library_files
from eaglechat.wire.left_out import LADDER, crash, next_step
from eaglechat.wire.load_options import LeaveOut, LoadOptions

VARIABLE = "EAGLECHAT_LEAVE_OUT"
"""This environment variable says what to leave out. Nothing is then tried or remembered."""
_PROBE_S = 120.0


_may_crash = False


def this_process_may_crash() -> None:
    """To be called in a process that is started again after a crash: nothing is tried first."""
    global _may_crash  # noqa: PLW0603 - the process is either of the two kinds
    _may_crash = True


@lru_cache(maxsize=1)
def for_this_process() -> tuple[LeaveOut, ...]:
    """What to leave out in this process if a load does not say it."""
    words = os.environ.get(VARIABLE)
    if words is not None:
        return tuple(one for one in LADDER if one in words.split(","))
    known = remembered()
    if known is not None:
        return known.left_out
    left_out: tuple[LeaveOut, ...] | None = None if _may_crash else ()
    while left_out is not None:
        how = probe(left_out)
        if how is None:
            remember(left_out)
            return left_out
        left_out = next_step(left_out, possible(), LoadOptions()) if how else None
    return ()


def possible() -> tuple[LeaveOut, ...]:
    """What can be left out on this machine."""
    has = {
        "amx": has_amx(),
        "extra_buffers": True,
        "flash_attention": True,
        "gpu": any(device.is_gpu for device in backend.devices()),
    }
    return tuple(one for one in LADDER if has[one])


def has_amx() -> bool:
    """Whether Linux says that the CPU has AMX; llama.cpp uses it on Linux only."""
    with suppress(OSError):
        return " amx_tile" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return False


_GCC = re.compile(rb"GCC: \([^)]*\) (\d+)\.(\d+)[.\d]*")
_GCC_MENDED = (13, 2)
"""In earlier versions `_tile_loadconfig` declares 8 of the 64 bytes that it reads, so the compiler
drops the stores to the others, and AMX reads garbage from the stack (llama.cpp #20824)."""


def compiler() -> str | None:
    """The version of the GCC that compiled llama.cpp for the CPU, if it breaks AMX; else None."""
    for file in library_files():
        with suppress(OSError):
            found = _GCC.search(file.read_bytes()) if "ggml-cpu" in file.name else None
            if found and (int(found[1]), int(found[2])) < _GCC_MENDED:
                return found[0].decode().rsplit(" ", 1)[-1]
    return None


def mending_command(left_out: Sequence[LeaveOut]) -> str:
    """The shell command after which none of this has to be left out."""
    install = (
        f"{sys.executable} -m pip install --force-reinstall --no-deps --no-cache-dir "
        "--no-binary llama-cpp-python"
    )
    if "extra_buffers" in left_out or "amx" not in left_out:
        return f"{install} --upgrade llama-cpp-python"
    flags = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
    cmake = f"-DCMAKE_C_FLAGS='{flags}' -DCMAKE_CXX_FLAGS='{flags}'"
    return f'CMAKE_ARGS="{cmake}" {install} llama-cpp-python=={backend.versions()[0]}'


def this_library() -> str:
    """Identifies this build of llama.cpp; compiling it again makes another."""
    files = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in library_files()]
    return f"{backend.versions()[0]} {zlib.crc32(repr(files).encode()):08x}"


def these_devices() -> tuple[str, ...]:
    """The devices' descriptions, the CPU's among them."""
    return tuple(device.description for device in backend.devices()) or (platform.processor(),)


def remembered() -> Workaround | None:
    """What worked before with this build on this machine."""
    return crash_memory.remembered(this_library(), these_devices())


def remember(left_out: tuple[LeaveOut, ...]) -> None:
    """Keep that a model has run without these."""
    crash_memory.remember(left_out, this_library(), these_devices())


def probe(left_out: tuple[LeaveOut, ...] = ()) -> str | None:
    """Let a child process compute with a tiny model.

    Returns None if it could, how it crashed, or "" if it failed in another way, such as a full
    disk.
    """
    try:
        done = subprocess.run(
            own_python.command("eaglechat.engine.llama.probe"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PROBE_S,
            check=False,
            env={**os.environ, VARIABLE: ",".join(left_out), "GGML_NO_BACKTRACE": "1"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return None if done.returncode == 0 else crash(done.returncode) or ""

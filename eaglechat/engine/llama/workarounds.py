"""What llama.cpp does without on this machine because it crashes with it.

One case is seen before a load: AMX, where the compiler of llama.cpp breaks it. After other crashes
the engine's client starts it again (`links/crashes.py`), and what a pair then ran without is
remembered for that pair and this build of llama.cpp.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import get_args

import msgspec

from eaglechat import machine, paths
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.bindings import library_files
from eaglechat.state_file import StateFile
from eaglechat.wire.protocol import LeaveOut

VARIABLE = "EAGLECHAT_LEAVE_OUT"
"""This environment variable says what to leave out. Nothing else is looked at then."""
_MOST_REMEMBERED = 64
_GCC = re.compile(rb"GCC: \([^)]*\) (\d+)\.(\d+)[.\d]*")
_GCC_MENDED = (13, 2)
"""In earlier versions `_tile_loadconfig` declares 8 of the 64 bytes that it reads, so the compiler
drops the stores to the others, and AMX reads garbage from the stack (llama.cpp #20824)."""


class Workaround(msgspec.Struct, frozen=True, kw_only=True):
    """What a pair ran without after a crash."""

    files: tuple[str, ...]
    """Those of the target and the draft."""
    key: str
    """Of the build of llama.cpp, its devices, and these files."""
    left_out: tuple[LeaveOut, ...]
    crash: str
    """How llama.cpp had crashed, such as SIGSEGV."""
    since: date


_FILE = StateFile("crashes.json", list[Workaround])


@lru_cache(maxsize=1)
def for_every_model() -> tuple[LeaveOut, ...]:
    words = os.environ.get(VARIABLE)
    if words is not None:
        return tuple(one for one in get_args(LeaveOut) if one in words.split(","))
    return ("amx",) if compiler_that_breaks_amx() else ()


def for_models(files: Sequence[Path]) -> tuple[LeaveOut, ...]:
    """What a load of these files, the target and then the draft, leaves out beside that."""
    if VARIABLE in os.environ:
        return ()
    names = tuple(map(str, files))
    return next((one.left_out for one in remembered() if one.files == names), ())


def compiler_that_breaks_amx() -> str | None:
    """The version of the GCC that compiled llama.cpp for this CPU, if the CPU has AMX and that GCC
    breaks it; else None. llama.cpp uses AMX on Linux only."""
    if "amx_tile" not in machine.cpu_info("flags").split():
        return None
    with suppress(OSError):
        for file in library_files():
            found = _GCC.search(file.read_bytes()) if "ggml-cpu" in file.name else None
            if found and (int(found[1]), int(found[2])) < _GCC_MENDED:
                return found[0].decode().rsplit(" ", 1)[-1]
    return None


def mending_command() -> str:
    """The shell command that compiles llama.cpp again, so that nothing of AMX is in it."""
    flags = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
    return backend.built_with(f"-DCMAKE_C_FLAGS='{flags}' -DCMAKE_CXX_FLAGS='{flags}'")


def remember(files: Sequence[Path], left_out: tuple[LeaveOut, ...], crash: str) -> None:
    """Keep that these models ran without this after a crash. If the disk cannot be written, their
    next load crashes once more."""
    names = tuple(map(str, files))
    new = Workaround(
        files=names, key=key_of(names), left_out=left_out, crash=crash, since=date.today()
    )
    with _FILE.changing([]) as known:
        others = [one for one in known if one.files != names]
        known[:] = [*others[1 - _MOST_REMEMBERED :], new]


def remembered() -> list[Workaround]:
    """What is in force: that of files and a llama.cpp which are still the same. Oldest first."""
    return [one for one in _FILE.read([]) if one.key == key_of(one.files)]


def last_crash() -> date | None:
    """When this build of llama.cpp crashed last; None if it did not."""
    with suppress(OSError):
        at = paths.crash_log().stat().st_mtime
        if all(file.stat().st_mtime < at for file in library_files()):
            return date.fromtimestamp(at)
    return None


def forget() -> None:
    """Remember no crash any more. Raises OSError."""
    for file in (_FILE.path, paths.crash_log()):
        file.unlink(missing_ok=True)


def key_of(files: Sequence[str | Path], *more: object) -> str:
    """Other builds, devices and files, also of the same names, have other keys; so has what differs
    in `more`."""
    facts = [_machine(), *(_facts(Path(file)) for file in files), *more]
    return f"{zlib.crc32(repr(facts).encode()):08x}"


@lru_cache(maxsize=1)
def _machine() -> str:
    """This build of llama.cpp, which is another one after each compilation, and its devices."""
    devices = [device.description for device in backend.devices()]
    return repr((backend.versions(), devices, [_facts(file) for file in library_files()]))


def _facts(file: Path) -> tuple[str, int, int]:
    with suppress(OSError):
        found = file.stat()
        return file.name, found.st_size, found.st_mtime_ns
    return file.name, 0, 0

"""Writes an F16 copy of a target whose own type makes verifying a draft slow on the CPU.

llama.cpp has no CPU kernel for several rows of Q4_1: measured on the built-in pair, a batch of four
rows takes nearly three times as long as one row. F16 holds the same weights, and there a batch of
four takes about 1.5 times as long as one row.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import filelock
from gguf import LlamaFileType

from eaglechat.engine.llama.quantise import QuantiseError, quantise
from eaglechat.gguf.header import GGUFError, read_header
from eaglechat.gguf.memory import f16_bytes
from eaglechat.hub.local.cache import free_bytes
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.units import format_bytes
from eaglechat.paths import reencoded_dir

_LOCK_S = 0.2
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class LoadFile:
    """The file to load; `problem` says why it is not the F16 copy, if that failed."""

    target: Path
    problem: str | None = None


def target_to_load(pair: Pair, on_progress: Callable[[float], None]) -> LoadFile:
    """The F16 copy of a pair's target, written now if it does not exist; or the target itself for
    pairs that need no copy.

    `on_progress` gets a fraction several times per second; an exception it raises stops the writing
    and is passed on.
    """
    if not pair.reencode:
        return LoadFile(pair.target)
    try:
        copy = copy_of(pair.target)
        if not copy.is_file():
            _write(pair.target, copy, on_progress)
    except (OSError, GGUFError, QuantiseError) as error:
        why = str(error)
        if isinstance(error, OSError) and error.strerror:
            why = f"{error.filename}: {error.strerror}"
        return LoadFile(
            pair.target,
            f"A faster copy of {pair.target.name} cannot be written ({why}). The "
            "target is loaded as it is: its replies are as good, and drafting gains less.",
        )
    return LoadFile(copy)


def copy_of(target: Path) -> Path:
    """The path of a target's copy; its name contains the sha256 of the target."""
    digest = hashlib.sha256()
    with target.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return reencoded_dir() / f"{target.stem}-{digest.hexdigest()[:16]}.f16.gguf"


def _write(source: Path, copy: Path, on_progress: Callable[[float], None]) -> None:
    """Write the copy completely or not at all. Raises OSError, GGUFError, QuantiseError."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    with _locked(copy, on_progress):
        if copy.is_file():
            return
        needed, free = f16_bytes(read_header(source)), free_bytes(copy.parent)
        if needed > free:
            raise OSError(
                f"it takes {format_bytes(needed)}, and {copy.parent} has {format_bytes(free)} free"
            )
        part = copy.with_name(copy.name + ".part")
        try:
            quantise(
                source,
                part,
                LlamaFileType.MOSTLY_F16,
                lambda done, total: on_progress(done / total),
            )
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            part.replace(copy)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def _locked(copy: Path, on_progress: Callable[[float], None]) -> Iterator[None]:
    """Wait while another eaglechat writes the same copy."""
    lock = filelock.FileLock(copy.with_name(copy.name + ".lock"))
    while True:
        try:
            with lock.acquire(timeout=_LOCK_S):
                yield
                return
        except filelock.Timeout:
            on_progress(0.0)

"""Converts an EAGLE-3 checkpoint to a GGUF that llama.cpp runs with its target. No torch."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import filelock
from gguf import GGMLQuantizationType as Type
from gguf import LlamaFileType as FileType

from eaglechat.engine.gguf import GGUFError, read_header
from eaglechat.engine.preflight import DRAFT_ARCHITECTURE
from eaglechat.hub.convert.checkpoint import open_checkpoint
from eaglechat.hub.convert.config import read_config
from eaglechat.hub.convert.draft import examine
from eaglechat.hub.convert.errors import ConversionError
from eaglechat.hub.convert.metadata import packed_fields
from eaglechat.hub.convert.target import read_target
from eaglechat.hub.convert.weights import n_parameters, output_tensors
from eaglechat.hub.convert.writer import OutputTensor, aligned, header, write_tensors

DIRECT_TYPES = {
    "f32": (Type.F32, FileType.ALL_F32),
    "f16": (Type.F16, FileType.MOSTLY_F16),
    "bf16": (Type.BF16, FileType.MOSTLY_BF16),
    "q8_0": (Type.Q8_0, FileType.MOSTLY_Q8_0),
}
TYPES = tuple(DIRECT_TYPES)


@dataclass(frozen=True)
class Progress:
    """How far a conversion is, in bytes of the result."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class ConversionReport:
    """What a conversion made."""

    path: Path
    type: str
    size_bytes: int
    n_parameters: int
    target_layers: tuple[int, ...]
    draft_vocabulary: int
    """Tokens the draft can propose."""
    seconds: float
    notes: tuple[str, ...]
    """What the checkpoint said that was not taken literally, for the user to read."""


def convert(
    checkpoint: Path,
    target: Path,
    out: Path,
    type: str = "q8_0",
    progress: Callable[[Progress], None] = lambda _: None,
) -> ConversionReport:
    """Convert the checkpoint in a directory (or one weights file beside its config.json).

    `progress` is called a few times a second at least; what it raises stops the conversion and
    comes out of here. `out` appears when it is whole, or stays as it was. Raises ConversionError,
    OSError.
    """
    started = time.monotonic()
    if type not in DIRECT_TYPES:
        raise ConversionError(f"{type} is not a type; known are {', '.join(TYPES)}")
    kind, file_type = DIRECT_TYPES[type]
    target_header = read_target(target)
    stored = open_checkpoint(checkpoint)
    draft = examine(stored, read_config(stored.directory), target_header)
    _check_out(out)
    tensors = output_tensors(draft, kind)
    parameters = n_parameters(tensors)
    fields = packed_fields(draft, target_header, stored.directory, file_type, parameters)
    with _written_whole(out) as part:
        _write(part, header(fields, tensors), tensors, progress)
    draft_vocabulary = target_header.n_vocab if draft.d2t is None else draft.d2t.size
    return ConversionReport(
        path=out,
        type=type,
        size_bytes=out.stat().st_size,
        n_parameters=parameters,
        target_layers=draft.target_layers,
        draft_vocabulary=draft_vocabulary,
        seconds=time.monotonic() - started,
        notes=draft.notes,
    )


def _check_out(out: Path) -> None:
    """Refuse to write where something else lies: only an earlier draft is replaced."""
    if not out.parent.is_dir():
        raise ConversionError(f"the directory {out.parent} does not exist")
    if not out.exists():
        return
    if out.is_dir():
        raise ConversionError(f"{out} is a directory; name the file to write in it")
    try:
        replaceable = read_header(out).architecture == DRAFT_ARCHITECTURE
    except GGUFError:
        replaceable = False
    if not replaceable:
        raise ConversionError(
            f"{out} exists and is not an EAGLE-3 draft; choose another name, or delete it first"
        )


@contextmanager
def _written_whole(out: Path) -> Iterator[Path]:
    """A path to write to, which takes the name `out` at the end; it is removed on any failure.

    A process killed in the middle leaves the file behind; the next conversion overwrites it.
    """
    part = out.with_name(out.name + ".part")
    lock = filelock.FileLock(out.with_name(out.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ConversionError(f"another conversion is writing {out}") from None
    try:
        yield part
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)


def _write(
    path: Path,
    beginning: bytes,
    tensors: Sequence[OutputTensor],
    progress: Callable[[Progress], None],
) -> None:
    total = sum(tensor.n_bytes for tensor in tensors)
    needed = len(beginning) + sum(aligned(tensor.n_bytes) for tensor in tensors)
    path.unlink(missing_ok=True)
    _check_disk(path.parent, needed)
    done = 0

    def advance(n_bytes: int) -> None:
        nonlocal done
        done += n_bytes
        progress(Progress("converting", done, total))

    progress(Progress("converting", 0, total))
    with path.open("wb") as file:
        file.write(beginning)
        write_tensors(file, tensors, advance)
        file.flush()
        os.fsync(file.fileno())


def _check_disk(directory: Path, needed: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise ConversionError(
            f"the draft needs {needed / 1e6:,.0f} MB on the disk of {directory}, which has "
            f"{free / 1e6:,.0f} MB free: {(needed - free) / 1e6:,.0f} MB short"
        )

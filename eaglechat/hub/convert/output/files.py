"""Writes a draft's GGUF whole or not at all, in any of llama.cpp's types."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

import filelock
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type
from gguf import LlamaFileType as FileType

from eaglechat.engine.llama.quantise import QuantiseError, quantise
from eaglechat.gguf.header import GGUFError, read_header
from eaglechat.gguf.preflight import DRAFT_ARCHITECTURE
from eaglechat.hub.convert.errors import ConversionError
from eaglechat.hub.convert.output.writer import OutputTensor, aligned, header, write_tensors

DIRECT_TYPES = {
    "f32": (Type.F32, FileType.ALL_F32),
    "f16": (Type.F16, FileType.MOSTLY_F16),
    "bf16": (Type.BF16, FileType.MOSTLY_BF16),
    "q8_0": (Type.Q8_0, FileType.MOSTLY_Q8_0),
}
"""Written here, as llama.cpp's converter does."""

QUANTISED_TYPES = {
    "q6_k": FileType.MOSTLY_Q6_K,
    "q5_k_m": FileType.MOSTLY_Q5_K_M,
    "q5_k_s": FileType.MOSTLY_Q5_K_S,
    "q5_1": FileType.MOSTLY_Q5_1,
    "q5_0": FileType.MOSTLY_Q5_0,
    "q4_k_m": FileType.MOSTLY_Q4_K_M,
    "q4_k_s": FileType.MOSTLY_Q4_K_S,
    "q4_1": FileType.MOSTLY_Q4_1,
    "q4_0": FileType.MOSTLY_Q4_0,
    "iq4_nl": FileType.MOSTLY_IQ4_NL,
    "iq4_xs": FileType.MOSTLY_IQ4_XS,
    "q3_k_l": FileType.MOSTLY_Q3_K_L,
    "q3_k_m": FileType.MOSTLY_Q3_K_M,
    "q3_k_s": FileType.MOSTLY_Q3_K_S,
    "q2_k": FileType.MOSTLY_Q2_K,
}
"""Mixtures of types that llama.cpp chooses: it quantises the checkpoint written as it is stored."""

TYPES = (*DIRECT_TYPES, *QUANTISED_TYPES)


@dataclass(frozen=True)
class Progress:
    """How far a stage of the conversion is, in bytes of what it works on."""

    stage: Literal["converting", "quantising"]
    done: int
    total: int


Contents = Callable[[Type, FileType], tuple[list[bytes], list[OutputTensor]]]
"""Packed fields and tensors of a draft whose matrices have this type."""


def write_draft(
    out: Path,
    type: str,
    unquantised: str,
    contents: Contents,
    progress: Callable[[Progress], None],
) -> None:
    """Write a draft as `type`; llama.cpp makes its mixtures from a file of the type `unquantised`.

    `progress` is called a few times a second at least; what it raises stops the writing and comes
    out of here. `out` appears when it is whole, or stays as it was. Raises ConversionError,
    OSError.
    """
    kind, file_type = DIRECT_TYPES[type if type in DIRECT_TYPES else unquantised]
    fields, tensors = contents(kind, file_type)
    beginning = header(fields, tensors)
    with _written_whole(out) as part:
        if type in DIRECT_TYPES:
            _write(part, beginning, tensors, progress)
        else:
            _write_quantised(part, beginning, tensors, QUANTISED_TYPES[type], progress)


def check_out(out: Path) -> None:
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

    A process killed in the middle leaves its file behind; the next conversion removes it.
    """
    part = out.with_name(out.name + ".part")
    lock = filelock.FileLock(out.with_name(out.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ConversionError(f"another conversion is writing {out}") from None
    try:
        part.unlink(missing_ok=True)
        _unquantised(part).unlink(missing_ok=True)
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
        _unquantised(part).unlink(missing_ok=True)
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)


def _write(
    path: Path,
    beginning: bytes,
    tensors: Sequence[OutputTensor],
    progress: Callable[[Progress], None],
    spare: int = 0,
) -> None:
    """Write a GGUF; `spare` bytes more must be free on the disk for what follows."""
    total = sum(tensor.n_bytes for tensor in tensors)
    needed = len(beginning) + sum(aligned(tensor.n_bytes) for tensor in tensors) + spare
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


def _write_quantised(
    path: Path,
    beginning: bytes,
    tensors: Sequence[OutputTensor],
    file_type: FileType,
    progress: Callable[[Progress], None],
) -> None:
    whole = _unquantised(path)
    try:
        _write(whole, beginning, tensors, progress, spare=_largest_quantised(tensors))
        quantise(
            whole,
            path,
            file_type,
            lambda done, total: progress(Progress("quantising", done, total)),
        )
    except QuantiseError as error:
        raise ConversionError(str(error)) from error
    size = path.stat().st_size
    progress(Progress("quantising", size, size))


def _unquantised(part: Path) -> Path:
    return part.with_name(part.name + ".unquantised")


def _largest_quantised(tensors: Sequence[OutputTensor]) -> int:
    """No mixture is larger than all tensors in Q8_0."""
    block, block_bytes = GGML_QUANT_SIZES[Type.Q8_0]
    return sum(prod(tensor.shape) for tensor in tensors) // block * block_bytes


def _check_disk(directory: Path, needed: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise ConversionError(
            f"the draft needs {needed / 1e6:,.0f} MB on the disk of {directory}, which has "
            f"{free / 1e6:,.0f} MB free: {(needed - free) / 1e6:,.0f} MB short"
        )

"""Writes a draft's GGUF completely or not at all.

`gguf`'s writer writes all but the tensors' data, which come in pieces, and the target's tokenizer,
which is copied as it is stored.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import filelock
import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type
from gguf import LlamaFileType as FileType

from eaglechat.gguf.header import GGUFError, GGUFHeader, read_header
from eaglechat.gguf.preflight import DRAFT_ARCHITECTURE
from eaglechat.hub.errors import ConversionError
from eaglechat.paths import replacing

TYPES = {
    "f32": (Type.F32, FileType.ALL_F32),
    "f16": (Type.F16, FileType.MOSTLY_F16),
    "bf16": (Type.BF16, FileType.MOSTLY_BF16),
    "q8_0": (Type.Q8_0, FileType.MOSTLY_Q8_0),
    "q5_1": (Type.Q5_1, FileType.MOSTLY_Q5_1),
    "q5_0": (Type.Q5_0, FileType.MOSTLY_Q5_0),
    "q4_1": (Type.Q4_1, FileType.MOSTLY_Q4_1),
    "q4_0": (Type.Q4_0, FileType.MOSTLY_Q4_0),
}
"""What the matrices of a draft are stored as. The first four are what llama.cpp's converter writes,
byte for byte."""

_FIELD_COUNT_AT = 16
"""Where a GGUF says how many fields it has, in eight bytes."""


OnProgress = Callable[[int, int], None]
"""Gets the bytes that are written, and all, at least a few times per second. An exception it raises
stops the conversion and is passed on."""


@dataclass(frozen=True)
class OutputTensor:
    """A tensor to write. `chunks` yields its rows in order, already in `type`."""

    name: str
    shape: tuple[int, ...]
    """In numpy's order; GGUF stores the dimensions reversed."""
    type: gguf.GGMLQuantizationType
    chunks: Callable[[], Iterator[npt.NDArray[Any]]]

    @property
    def n_bytes(self) -> int:
        block, block_bytes = GGML_QUANT_SIZES[self.type]
        return prod(self.shape) // block * block_bytes


def check_out(out: Path) -> None:
    """Raise ConversionError unless `out` is free or holds an EAGLE-3 draft, which is replaced."""
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


def write_draft(
    out: Path,
    fields: gguf.GGUFWriter,
    tensors: Sequence[OutputTensor],
    progress: OnProgress,
    *,
    copied: Sequence[bytes],
) -> None:
    """Write a draft if the disk has room for it.

    `fields` is a writer without a file, which has the draft's own fields; `copied` are more, as
    `fields_as_stored` returns them. `out` appears when it is complete; otherwise what was there
    stays.
    Raises ConversionError, OSError.
    """
    with _alone(out), replacing(out, ".part") as part:
        total = sum(tensor.n_bytes for tensor in tensors)
        needed = total + sum(map(len, copied))
        free = shutil.disk_usage(out.parent).free
        if free < needed:
            raise ConversionError(
                f"the draft needs {needed / 1e6:,.0f} MB on the disk of {out.parent}, which has "
                f"{free / 1e6:,.0f} MB free: {(needed - free) / 1e6:,.0f} MB short"
            )
        for tensor in tensors:
            # The type that counts is the last one.
            fields.add_tensor_info(
                tensor.name, tensor.shape, np.dtype(np.float32), tensor.n_bytes, tensor.type
            )
        done = 0
        progress(0, total)
        try:
            fields.write_header_to_file(part)
            fields.write_kv_data_to_file()
            assert fields.fout is not None
            (file,) = fields.fout
            file.writelines(copied)
            file.seek(_FIELD_COUNT_AT)
            file.write(struct.pack("<Q", len(fields.kv_data[0]) + len(copied)))
            file.seek(0, os.SEEK_END)
            fields.write_ti_data_to_file()
            fields.write_padding(file, file.tell())
            for tensor in tensors:
                for chunk in tensor.chunks():
                    done += file.write(chunk.data.cast("B"))
                    progress(done, total)
                fields.write_padding(file, tensor.n_bytes)
        except (struct.error, OverflowError) as error:
            raise ConversionError(
                f"a GGUF has no room for a number of the draft: {error}"
            ) from error
        finally:
            fields.close()


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Raises ConversionError while another conversion is writing `out`."""
    lock = filelock.FileLock(out.with_name(out.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ConversionError(f"another conversion is writing {out}") from None
    try:
        yield
    finally:
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)


def fields_as_stored(header: GGUFHeader, prefix: str) -> list[bytes]:
    """The packed fields of a GGUF whose keys begin with `prefix`, copied byte for byte."""
    fields = []
    with header.path.open("rb") as file:
        for key, (start, end) in header.spans.items():
            if key.startswith(prefix):
                file.seek(start)
                fields.append(file.read(end - start))
    return fields

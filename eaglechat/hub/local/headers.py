"""The headers of the models on this machine, kept in the state directory: a list of models needs
them all, and reading one takes long, most of it for the vocabulary."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from eaglechat import paths
from eaglechat.gguf.header import Array, GGUFHeader, TensorInfo, read_header
from eaglechat.paths import write_atomically

_Stamp = tuple[int, int]
_Tensors = tuple[TensorInfo, ...]


_Kept = tuple[
    _Stamp,
    dict[str, Array | str | int | float | bool],
    _Tensors,
    int,
    int,
    dict[str, tuple[int, int]],
    _Tensors,
]
"""What a model's files had when its header was read, and the fields of that but its path."""


class HeaderBook:
    """Headers by path; one counts as long as the size and the time of change of its files stay.

    A file that cannot be read counts as empty, and one that cannot be written is left.
    """

    def __init__(self) -> None:
        self._file = paths.state_dir() / "headers.msgpack"
        self._kept: dict[bytes, msgspec.Raw] = {}
        self._used: dict[bytes, msgspec.Raw] = {}
        with suppress(OSError, msgspec.DecodeError):
            self._kept = msgspec.msgpack.decode(
                self._file.read_bytes(), type=dict[bytes, msgspec.Raw]
            )

    def header(self, files: Sequence[Path]) -> GGUFHeader:
        """The header of a model. Raises GGUFError, OSError."""
        # A shard that has gone is told by reading.
        stats = [file.stat() for file in files]
        stamp = sum(stat.st_size for stat in stats), max(stat.st_mtime_ns for stat in stats)
        path, key = files[0], os.fsencode(files[0])
        raw = self._kept.get(key)
        if raw is not None:
            with suppress(msgspec.DecodeError, TypeError, ValueError):
                kept = msgspec.msgpack.decode(raw, type=_Kept)
                if kept[0] == stamp:
                    self._used[key] = raw
                    return GGUFHeader(path, *kept[1:])
        header = read_header(path)
        fields = (
            header.fields,
            header.tensors,
            header.data_start,
            header.size_bytes,
            header.spans,
            header.tensors_elsewhere,
        )
        self._used[key] = msgspec.Raw(msgspec.msgpack.encode((stamp, *fields)))
        return header

    def save(self) -> None:
        """Keep the headers that were asked for, and no others."""
        if self._used.keys() != self._kept.keys() or any(
            self._kept[key] is not raw for key, raw in self._used.items()
        ):
            with suppress(OSError):
                write_atomically(self._file, msgspec.msgpack.encode(self._used))

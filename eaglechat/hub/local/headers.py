"""The headers of the models on this machine, kept in the state directory: a list of models needs
them all, and reading one takes long, most of it for the vocabulary."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from eaglechat import paths
from eaglechat.gguf.header import GGUFHeader, read_header
from eaglechat.paths import write_atomically


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    stamp: tuple[int, int]
    """The size and the time of change of a model's files when its header was read."""
    header: GGUFHeader
    """Without its path."""


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
                kept = msgspec.msgpack.decode(raw, type=_Kept, dec_hook=_as)
                if kept.stamp == stamp:
                    self._used[key] = raw
                    return replace(kept.header, path=path)
        header = read_header(path)
        kept = _Kept(stamp, replace(header, path=Path()))
        self._used[key] = msgspec.Raw(msgspec.msgpack.encode(kept, enc_hook=str))
        return header

    def save(self) -> None:
        """Keep the headers that were asked for, and no others."""
        if self._used.keys() != self._kept.keys() or any(
            self._kept[key] is not raw for key, raw in self._used.items()
        ):
            with suppress(OSError):
                write_atomically(self._file, msgspec.msgpack.encode(self._used))


def _as(type: type[Any], text: str) -> Any:
    return type(text)

"""The headers of the models on this machine, kept in the state directory: a list of models needs
them all, and reading one takes long, most of it for the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from math import isfinite
from pathlib import Path

import msgspec

from eaglechat.gguf.header import Array, GGUFHeader, read_header
from eaglechat.state_file import StateFile


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    stamp: tuple[int, int]
    """The size and the time of change of a model's files when its header was read."""
    header: GGUFHeader
    """Without its path."""


class HeaderBook:
    """Headers by path; one counts as long as the size and the time of change of its files stay."""

    def __init__(self) -> None:
        self._file = StateFile("headers.json", dict[str, _Kept], indent=-1)
        self._kept, self._used = self._file.read({}), dict[str, _Kept]()

    def header(self, files: Sequence[Path]) -> GGUFHeader:
        """The header of a model. Raises GGUFError, OSError."""
        # A shard that has gone is told by reading.
        stats = [file.stat() for file in files]
        stamp = sum(stat.st_size for stat in stats), max(stat.st_mtime_ns for stat in stats)
        # A path may hold bytes that are no text.
        path, key = files[0], ascii(str(files[0]))
        kept = self._kept.get(key)
        if kept is None or kept.stamp != stamp:
            kept = _Kept(stamp, replace(read_header(path), path=Path()))
        if _is_finite(kept.header):
            self._used[key] = kept
        return replace(kept.header, path=path)

    def save(self) -> None:
        """Keep the headers that were asked for, and no others."""
        if self._used != self._kept:
            self._file.write(self._used)


def _is_finite(header: GGUFHeader) -> bool:
    """Whether JSON has numbers for those of a header: it has no NaN and no infinity."""
    values = (
        one.values or () if isinstance(one, Array) else (one,) for one in header.fields.values()
    )
    return all(isfinite(one) for one in chain.from_iterable(values) if isinstance(one, float))

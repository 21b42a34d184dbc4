"""Judges a checkpoint on the Hub before its download, by the converter's own rules: its
configuration, the headers of its weights and its vocabulary map are a few hundred kilobytes."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import BinaryIO, Literal, NamedTuple

from eaglechat.gguf.header import GGUFHeader
from eaglechat.hub.convert.checkpoint import read_weights, weight_files
from eaglechat.hub.convert.config import parse_config
from eaglechat.hub.convert.draft import check_config, check_target, examine, with_tokens
from eaglechat.hub.downloads.client import Hub, RemoteFile
from eaglechat.hub.errors import ConversionError, HubError

_READ_AT_ONCE = 64 << 10
_MOST_BYTES = 128 << 20
"""Of one file: a header may have half of it, and no weights are read."""
_MOST_INDEX_BYTES = 8 << 20


class Judged(NamedTuple):
    """What the converter will make of a checkpoint."""

    problem: str | None
    """Why it would refuse it; None if it would not."""
    guessed_layers: tuple[int, ...] = ()
    """Those of the target that the draft is taken to read, where it does not say which."""


def judge_checkpoint(hub: Hub, files: Sequence[RemoteFile], target: GGUFHeader) -> Judged:
    """What the converter says of a checkpoint of these files for a target.

    Only weights that are damaged, which nothing but themselves tells, are refused later.
    Raises HubError.
    """

    by_name = {file.path: file for file in files}
    repo = files[0].repo

    def content(name: str) -> bytes:
        return hub.read_small(by_name[name], _MOST_INDEX_BYTES)

    try:
        check_target(target)
        config = parse_config(content("config.json"), f"{repo}/config.json")
        check_config(config, target)
        names = weight_files(by_name, content, repo)
        stored = read_weights(_OnHub(hub, by_name[name]) for name in names)
        draft = with_tokens(examine(stored, config, target), target)
    except ConversionError as error:
        return Judged(str(error))
    return Judged(None, () if config.aux_layer_ids else draft.target_layers)


class _OnHub:
    """A file of a checkpoint that is not here."""

    def __init__(self, hub: Hub, file: RemoteFile) -> None:
        self._hub, self._file = hub, file

    def __str__(self) -> str:
        return self._file.name

    @property
    def name(self) -> str:
        return self._file.path

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        """Reads raise HubError."""
        return io.BufferedReader(_Ranges(self._hub, self._file), _READ_AT_ONCE)


class _Ranges(io.RawIOBase):
    """A file on the Hub as if it were here: what is read of it is asked for."""

    def __init__(self, hub: Hub, file: RemoteFile) -> None:
        self._hub, self._file = hub, file
        self._at = self._read = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size}[whence]
        if begin + offset < 0:
            raise OSError("before the beginning of the file")
        self._at = begin + offset
        return self._at

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        self._read += len(buffer)
        if self._read > _MOST_BYTES:
            raise HubError(f"{self._file.name} has too large a header to judge it.")
        data = self._hub.read_range(self._file, self._at, self._at + len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

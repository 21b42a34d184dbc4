"""Judges a checkpoint on the Hub before its download, with the converter's own checks.

They read config.json, the headers of the weights and the vocabulary map: a few hundred kilobytes.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import BinaryIO, Literal, NamedTuple

from eaglechat.gguf.header import GGUFHeader
from eaglechat.hub.convert.checkpoint import read_weights, weight_files
from eaglechat.hub.convert.config import OtherKindError, parse_config
from eaglechat.hub.convert.draft import check_config, check_target, examine, with_tokens
from eaglechat.hub.downloads.client import Hub, RemoteFile
from eaglechat.hub.errors import ConversionError, HubError
from eaglechat.wire.protocol import DrafterKind

READ_AT_ONCE = 256 << 10
_MOST_BYTES = 128 << 20
"""The most bytes read of one file: twice the largest header, as no weights are read."""
_MOST_INDEX_BYTES = 8 << 20


class Judged(NamedTuple):
    """The outcome of the converter's checks."""

    problem: str | None
    """Why the converter would refuse the checkpoint; None if it would not."""
    guessed_layers: tuple[int, ...] = ()
    """The target's layers that the conversion will assume, if config.json does not name them."""
    kind: DrafterKind | None = None
    """What drafter it is; None if it is refused and is not known to be of another kind."""


def judge_checkpoint(hub: Hub, files: Sequence[RemoteFile], target: GGUFHeader) -> Judged:
    """Check the checkpoint of these files for a target. Raises HubError.

    Only damage inside the weights is found later, by the conversion.
    """

    by_name = {file.path: file for file in files}
    repo = files[0].repo

    def content(name: str) -> bytes:
        return hub.read_small(by_name[name], _MOST_INDEX_BYTES)

    try:
        config = parse_config(content("config.json"), f"{repo}/config.json")
        check_target(target)
        check_config(config, target)
        names = weight_files(by_name, content, repo)
        stored = read_weights(_OnHub(hub, by_name[name]) for name in names)
        draft = with_tokens(examine(stored, config, target), target)
    except OtherKindError as error:
        return Judged(str(error), kind=error.kind)
    except ConversionError as error:
        return Judged(str(error))
    return Judged(None, () if config.aux_layer_ids else draft.target_layers, "eagle3")


class _OnHub:
    """A CheckpointFile on the Hub."""

    def __init__(self, hub: Hub, file: RemoteFile) -> None:
        self._hub, self._file = hub, file

    def __str__(self) -> str:
        return self._file.name

    @property
    def name(self) -> str:
        return self._file.path

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        """The file, for reading; its reads raise HubError."""
        return io.BufferedReader(_Ranges(self._hub, self._file), READ_AT_ONCE)


class _Ranges(io.RawIOBase):
    """A file on the Hub as a raw stream: each read is one range request."""

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

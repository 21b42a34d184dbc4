"""What a model on this machine is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path

from eaglechat.gguf.header import GGUFHeader
from eaglechat.hub.local.cache import hops
from eaglechat.hub.references import group_models

_NAMED_BY_HASH = re.compile(r"(?:sha256-)?([0-9a-f]{64})")


class Source(str, Enum):
    """Where a model was found."""

    HUGGING_FACE = "Hugging Face cache"
    OLLAMA = "Ollama"
    LM_STUDIO = "LM Studio"
    LLAMA_CPP = "llama.cpp"
    CONVERTED = "converted here"
    FOLDER = "folder"


class ModelKind(str, Enum):
    """What a model can be used as."""

    TARGET = "target"
    DRAFT = "draft"
    CHECKPOINT = "checkpoint"
    PLAIN = "target without drafts"
    OTHER = "other"
    BROKEN = "broken"
    UNFINISHED = "unfinished"
    UNREAD = "not read"
    """Of `files_here`: its header was not read yet."""


@dataclass(frozen=True)
class LocalModel:
    """A model on this machine. `problem` says in one sentence why it cannot be used, if so."""

    name: str
    kind: ModelKind
    source: Source
    path: Path
    """The path to load: the first file, or a checkpoint's folder."""
    files: tuple[Path, ...] = field(repr=False)
    size_bytes: int
    repo: str | None = None
    header: GGUFHeader | None = field(default=None, repr=False)
    problem: str | None = None
    also: tuple[LocalModel, ...] = field(default=(), repr=False)
    """Duplicates. A duplicate that is a link to the same file counts 0 bytes."""
    in_repo: tuple[str, ...] = ()
    """The paths of its files in its repository; without one, as they are below its folder."""
    commit: str = ""
    """Of its repository; empty outside of the Hugging Face cache."""

    @property
    def is_target(self) -> bool:
        """Whether it can write replies by itself."""
        return self.kind in (ModelKind.TARGET, ModelKind.PLAIN)

    @property
    def short_name(self) -> str:
        """Its name without the repository and the ending of a file."""
        return self.name.rpartition("/")[2].removesuffix(".gguf")

    @property
    def everywhere(self) -> tuple[LocalModel, ...]:
        """This model and its duplicates."""
        return (self, *self.also)

    @property
    def disk_bytes(self) -> int:
        """Bytes of all its copies."""
        return sum(one.size_bytes for one in self.everywhere)

    @cached_property
    def sha256(self) -> str | None:
        """Of its one file, if a blob on the way to that is named by it."""
        blobs = (hop.name for hop in hops(self.path) if hop.parent.name == "blobs")
        named = next(filter(None, map(_NAMED_BY_HASH.fullmatch, blobs)), None)
        return named[1] if named and len(self.files) == 1 else None

    @cached_property
    def is_whole(self) -> bool:
        """Whether a GGUF model lacks no shard."""
        return not self.in_repo or bool(group_models(self.in_repo))

    @property
    def place(self) -> object:
        """What its first file shares with every other name of the same file."""
        real = Path(os.path.realpath(self.path))
        try:
            stat = real.stat()
        except OSError:
            return real
        return (stat.st_dev, stat.st_ino) if stat.st_ino else real


def size_of(files: Iterable[Path]) -> int:
    """The bytes of files; 0 for one that has gone or whose link is broken."""
    total = 0
    for file in files:
        with suppress(OSError):
            total += file.stat().st_size
    return total

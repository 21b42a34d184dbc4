"""Split models: `m-00001-of-00003.gguf` is the first of three files of one model. A name that says
“3 of 2” is one like any other: llama.cpp, too, asks the header whether a model is split."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.I | re.S)


@dataclass(frozen=True)
class Shard:
    """Which file of a split model a name stands for."""

    stem: str
    number: int
    """From 1 to `count`."""
    count: int

    def file(self, number: int) -> str:
        """The name of a file of the same model."""
        return f"{self.stem}-{number:05d}-of-{self.count:05d}.gguf"


def shard_of(name: str) -> Shard | None:
    """The shard that a name, or a path as text, stands for; None if it is no shard's."""
    match = _NAME.fullmatch(name)
    shard = Shard(match["stem"], int(match["number"]), int(match["count"])) if match else None
    return shard if shard is not None and 1 <= shard.number <= shard.count else None


def plain_name(name: str) -> str:
    """The name of a whole model: a shard's, or its path as text, without its number."""
    shard = shard_of(name)
    return f"{shard.stem}.gguf" if shard is not None else name


def shard_paths(path: Path) -> list[Path]:
    """The files of a split model that exist, in order, or `path` alone. Raises OSError."""
    shard = shard_of(path.name)
    if shard is None:
        return [path]
    numbered = ((shard_of(other.name), other) for other in path.parent.iterdir())
    beside = [
        (other.number, file)
        for other, file in numbered
        if other is not None and (other.stem, other.count) == (shard.stem, shard.count)
    ]
    return [file for _, file in sorted(beside)]

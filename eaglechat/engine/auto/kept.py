"""What auto has learnt of pairs, kept for the next start: auto.json in the state folder."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta

from eaglechat import paths
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

_MOST = 32
"""Pairs, with each of their drafters: about 3 kB each."""
_HALVED_DAYS = 30.0
"""What was learnt counts half as much after so many days."""

_Number = Annotated[float, Meta(ge=0.0, le=1e6)]
_Ms = Annotated[float, Meta(ge=1e-3, le=1e6)]
_N = N_DRAFT_MAX_LIMIT + 1
_OfWidths = Meta(min_length=_N, max_length=_N)


class Learnt(msgspec.Struct, frozen=True):
    """What a controller has learnt of a drafter and its target."""

    counts: tuple[tuple[tuple[_Number, ...], tuple[_Number, ...]], ...]
    """The sums and the tries of each of the controller's `Counts`."""
    verify: Annotated[tuple[_Ms, ...], _OfWidths]
    """Milliseconds of verifying a batch, by width from 1 on."""
    doubts: Annotated[tuple[_Number, ...], _OfWidths]
    """The relative standard error of each, compared with that of one row."""
    draft: Annotated[tuple[_Number, ...], Meta(min_length=4, max_length=4)]
    """Milliseconds of a draft: its beginning, a step, a waiting row, a sibling."""
    certainty: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """How much of it still holds, by its age."""


class _Entry(msgspec.Struct, frozen=True):
    key: str
    at: float
    """Unix time."""
    learnt: Learnt


class Kept:
    """What is kept of the drafters of a pair. A file that cannot be read counts as empty, and one
    that cannot be written is left: it is learnt again."""

    def __init__(self, key: str) -> None:
        """`key` is another one for other models, threads, devices and builds of llama.cpp."""
        self._key = key

    def recall(self, drafter: str) -> Learnt | None:
        key = self._of(drafter)
        found = next((one for one in _read() if one.key == key), None)
        if found is None:
            return None
        days = max(0.0, time.time() - found.at) / 86_400.0
        # The next reply is about something else.
        certainty = max(0.25 * 0.5 ** (days / _HALVED_DAYS), 1e-6)
        return msgspec.structs.replace(found.learnt, certainty=certainty)

    def keep(self, drafter: str, learnt: Learnt) -> None:
        new = _Entry(self._of(drafter), time.time(), learnt)
        file = paths.state_dir() / "auto.json"
        with suppress(OSError), paths.changing(file):
            others = [one for one in _read() if one.key != new.key][1 - _MOST :]
            paths.write_atomically(file, msgspec.json.encode([*others, new]))

    def _of(self, drafter: str) -> str:
        return f"{self._key} {drafter}"


def _read() -> list[_Entry]:
    """Oldest first."""
    with suppress(OSError, ValueError, RecursionError):
        file = paths.state_dir() / "auto.json"
        return msgspec.json.decode(file.read_bytes(), type=list[_Entry])
    return []

"""What auto has learnt of pairs, kept for the next start: auto.json in the state folder."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from msgspec import Meta

from eaglechat.state_file import StateFile
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
    def __init__(self, key: str) -> None:
        """`key` is another one for other models, threads, devices and builds of llama.cpp."""
        self._key = key
        self._file = StateFile("auto.json", list[_Entry], indent=-1)

    def recall(self, drafter: str) -> Learnt | None:
        key = self._of(drafter)
        found = next((one for one in self._file.read([]) if one.key == key), None)
        if found is None:
            return None
        days = max(0.0, time.time() - found.at) / 86_400.0
        # The next reply is about something else.
        certainty = max(0.25 * 0.5 ** (days / _HALVED_DAYS), 1e-6)
        return msgspec.structs.replace(found.learnt, certainty=certainty)

    def keep(self, drafter: str, learnt: Learnt) -> None:
        new = _Entry(self._of(drafter), time.time(), learnt)
        with self._file.changing([]) as known:
            others = [one for one in known if one.key != new.key]
            known[:] = [*others[1 - _MOST :], new]

    def _of(self, drafter: str) -> str:
        return f"{self._key} {drafter}"

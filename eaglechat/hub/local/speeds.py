"""What was measured of each pair on this machine: how fast it decodes plainly, and what drafting
gains.

Chats and bench write it to speeds.json in the state directory; the panel compares with the plain
speed, and the menu shows the gain.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal

import msgspec

from eaglechat.hub.local.pair import Pair
from eaglechat.paths import write_atomically
from eaglechat.wire.bench_records import PLAIN, BenchPrompt, BenchRun
from eaglechat.wire.protocol import AUTO, Auto

if TYPE_CHECKING:
    from eaglechat.engine.bench.verdict import Verdict

_SHORT = 256
"""Tokens of context up to which attention takes too little of a pass to tell contexts apart."""


class PlainSpeed(msgspec.Struct, frozen=True):
    """Tokens per second of plain decoding behind `n_past` tokens, plus or minus two standard errors
    (`error`), measured at the Unix time `at`."""

    tokens_per_second: float
    error: float
    n_past: int
    at: float


class Gain(msgspec.Struct, frozen=True):
    """How many times as fast as plain decoding a pair was, plus or minus `error`, with this draft
    length."""

    speed_up: float
    error: float
    n_draft_max: int | Auto
    by: Literal["bench", "chat"]
    at: float


class _Of(msgspec.Struct, frozen=True):
    """An element of speeds.json: what is known of two files, or of a server's model."""

    target: str
    draft: str | None
    server: str = ""
    plain: tuple[PlainSpeed, ...] = ()
    """At most one for each doubling of the context."""
    gain: Gain | None = None


class Speeds:
    """Reads and writes speeds.json. A file that cannot be read counts as empty, and one that cannot
    be written is left: what it holds is measured again."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / "speeds.json"
        self._of: dict[tuple[str, str | None, str], _Of] | None = None

    def plain(self, pair: Pair, n_past: int) -> PlainSpeed | None:
        """The latest plain speed behind at least half and at most twice as many tokens."""
        wanted = max(n_past, _SHORT)
        near = [
            one
            for one in self._about(pair).plain
            if wanted / 2 <= max(one.n_past, _SHORT) <= wanted * 2
        ]
        return max(near, key=lambda one: one.at, default=None)

    def gain(self, pair: Pair) -> Gain | None:
        return self._about(pair).gain

    def note_plain(self, pair: Pair, speed: PlainSpeed) -> None:
        known = self._about(pair)
        others = (one for one in known.plain if _doublings(one) != _doublings(speed))
        self._note(pair, msgspec.structs.replace(known, plain=(*others, speed)))

    def note_gain(self, pair: Pair, gain: Gain) -> None:
        self._note(pair, msgspec.structs.replace(self._about(pair), gain=gain))

    def _about(self, pair: Pair) -> _Of:
        key = _key(pair)
        return self._all().get(key, _Of(*key))

    def _all(self) -> dict[tuple[str, str | None, str], _Of]:
        if self._of is None:
            known: list[_Of] = []
            with suppress(OSError, msgspec.DecodeError):
                known = msgspec.json.decode(self._file.read_bytes(), type=list[_Of])
            self._of = {(one.target, one.draft, one.server): one for one in known}
        return self._of

    def _note(self, pair: Pair, known: _Of) -> None:
        # Another eaglechat may have measured other pairs meanwhile.
        self._of = None
        speeds = {**self._all(), _key(pair): known}
        self._of = speeds
        with suppress(OSError):
            write_atomically(
                self._file, msgspec.json.format(msgspec.json.encode([*speeds.values()]))
            )


def note_bench(
    speeds: Speeds,
    pair: Pair,
    prompts: Sequence[BenchPrompt],
    verdict: Verdict,
    runs: Sequence[BenchRun],
) -> None:
    """Note what a bench with repeats measured: the gain, and the plain speed on its short
    prompts."""
    now, gain, n = time.time(), verdict.gain, verdict.best.n
    if gain.error is None or n is None:
        return
    length = AUTO if n == AUTO else int(n)
    speeds.note_gain(pair, Gain(gain.speed_up, gain.error, length, "bench", now))
    short = {one.name: len(one.text) // 4 for one in prompts if len(one.text) // 4 <= _SHORT}
    plain = [run for run in runs if run.setting == PLAIN and run.prompt in short]
    if len(plain) > 1:
        rates = [run.tokens_per_second for run in plain]
        error = 2 * stdev(rates) / sqrt(len(rates))
        n_past = round(fmean(short[run.prompt] + run.tokens / 2 for run in plain))
        speeds.note_plain(pair, PlainSpeed(fmean(rates), error, n_past, now))


def _key(pair: Pair) -> tuple[str, str | None, str]:
    return (*pair.to_load, pair.server.url if pair.server else "")


def _doublings(speed: PlainSpeed) -> int:
    return (speed.n_past // _SHORT).bit_length()

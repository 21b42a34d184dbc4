"""What drafting gains with each pair on this machine, for the menu: speeds.json in the state
directory.

A bench or a comparison measures it. Replies of chats are kept by draft length, and count once they
are several. What is known holds for one `Setup`: with other threads, or another llama.cpp, it
is measured again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from eaglechat.hub.local.pairs import Pair
from eaglechat.settings.model import EngineSettings
from eaglechat.state_file import StateFile
from eaglechat.wire.gain import GainVerdict, MeasuredGain, student_t
from eaglechat.wire.protocol import AUTO, Auto

FEWEST_REPLIES = 8
"""The mean of fewer replies is not told: they may all be about one thing."""
_MOST_REPLIES = 200


class Setup(msgspec.Struct, frozen=True):
    """What a gain depends on, besides the draft length."""

    target: str
    draft: str | None
    drafter: str
    """As it is asked for: a kind, or "auto"."""
    server: str = ""
    """The server's address; then the rest is the server's."""
    n_threads: int = 0
    n_gpu_layers: int = 0
    kv_types: tuple[str, ...] = ()
    """Of the target and of the draft."""
    command: tuple[str, ...] = ()
    llama_cpp: str = ""
    """The version of what runs the pair on this machine."""


def setup_of(pair: Pair, engine: EngineSettings, drafter: str = AUTO) -> Setup:
    target, draft = pair.to_load
    if pair.server is not None:
        return Setup(target, draft, drafter, pair.server.url)
    return Setup(
        target,
        draft,
        drafter,
        n_threads=engine.n_threads,
        n_gpu_layers=engine.n_gpu_layers,
        kv_types=(engine.kv_type, engine.draft_kv_type),
        command=engine.command,
        llama_cpp="" if engine.command else _version(engine.llama_server),
    )


@cache
def _version(llama_server: str) -> str:
    """Of the library; of a llama-server, its file and when that was built."""
    # The menu is shown before anybody asks.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    with suppress(OSError, PackageNotFoundError):
        if not llama_server:
            return version("llama-cpp-python")
        return f"{llama_server} {Path(llama_server).stat().st_mtime:.0f}"
    return llama_server


class Gain(msgspec.Struct, frozen=True):
    """How many times as fast as plain decoding a pair was with a draft length, plus or minus
    `error` (95%), as measured at the Unix time `at`."""

    speed_up: float
    error: float
    n_draft_max: int | Auto
    by: Literal["bench", "question", "race", "replies"]
    """question: by a comparison of one question, which older files call a race."""
    at: float
    replies: int = 0
    """Of how many it is the mean, if it is by replies."""
    temperature: float | None = None
    """None for replies, and in older files."""

    def __post_init__(self) -> None:
        if self.by == "race":
            msgspec.structs.force_setattr(self, "by", "question")

    @property
    def verdict(self) -> GainVerdict:
        return MeasuredGain(self.speed_up, self.error).verdict


class _Replies(msgspec.Struct, frozen=True):
    """The latest replies with a draft length."""

    n_draft_max: int | Auto
    at: float = 0.0
    times: tuple[tuple[float, float], ...] = ()
    """Of each, the milliseconds that it would have taken in plain decoding, and those it took."""

    @property
    def gain(self) -> Gain | None:
        n = len(self.times)
        if n < FEWEST_REPLIES:
            return None
        plain_ms, taken_ms = map(sum, zip(*self.times, strict=True))
        ratio = plain_ms / taken_ms
        # The standard error of a ratio of two means, from what is left of each reply's plain time
        # when its own time at the common ratio is taken away.
        left = sum((plain - ratio * taken) ** 2 for plain, taken in self.times)
        error = student_t(n - 1) * sqrt(left * n / (n - 1)) / taken_ms
        return Gain(ratio, error, self.n_draft_max, "replies", self.at, n)


_ByLength = TypeVar("_ByLength", Gain, _Replies)


def _by_length(known: Sequence[_ByLength]) -> dict[int | Auto, _ByLength]:
    return {one.n_draft_max: one for one in known}


class _Of(msgspec.Struct, frozen=True):
    """An element of speeds.json: what is known of a setup, at most one of each by draft length."""

    setup: Setup
    measured: tuple[Gain, ...] = ()
    replies: tuple[_Replies, ...] = ()


class Speeds:
    def __init__(self, state_dir: Path) -> None:
        self._file = StateFile("speeds.json", list[_Of], state_dir)
        self._of: dict[Setup, _Of] | None = None

    def read(self) -> None:
        """Read the file again; without this, it is read once."""
        with self._file.changing([]) as known:
            self._of = {one.setup: one for one in known}

    def gain(self, setup: Setup, n_draft_max: int | Auto) -> Gain | None:
        """With this draft length: as measured, or the mean of enough replies if only that has a
        verdict."""
        if self._of is None:
            # Without the lock: the app's thread does not wait for another program.
            self._of = {one.setup: one for one in self._file.read([])}
        known = self._of.get(setup, _Of(setup))
        replies = _by_length(known.replies).get(n_draft_max)
        both = _by_length(known.measured).get(n_draft_max), replies.gain if replies else None
        found = [gain for gain in both if gain is not None]
        clear = [gain for gain in found if gain.verdict != "unclear"]
        return next(iter(clear or found), None)

    def note(self, setup: Setup, *gains: Gain) -> None:
        """Keep what was measured. One question does not replace the prompts of a bench."""

        def noted(known: _Of) -> _Of:
            measured = _by_length(known.measured)
            for gain in gains:
                before = measured.get(gain.n_draft_max)
                if before is None or gain.by == "bench" or before.by != "bench":
                    measured[gain.n_draft_max] = gain
            return msgspec.structs.replace(known, measured=(*measured.values(),))

        self._change(setup, noted)

    def note_reply(
        self, setup: Setup, n_draft_max: int | Auto, plain_ms: float, taken_ms: float
    ) -> None:
        """Add a reply, by the time that it took and would have taken in plain decoding."""

        def added(known: _Of) -> _Of:
            replies = _by_length(known.replies)
            before = replies.get(n_draft_max, _Replies(n_draft_max)).times
            times = (*before, (plain_ms, taken_ms))[-_MOST_REPLIES:]
            replies[n_draft_max] = _Replies(n_draft_max, time.time(), times)
            return msgspec.structs.replace(known, replies=(*replies.values(),))

        self._change(setup, added)

    def _change(self, setup: Setup, change: Callable[[_Of], _Of]) -> None:
        with self._file.changing([]) as known:
            of = {one.setup: one for one in known}
            of[setup] = change(of.get(setup, _Of(setup)))
            known[:] = of.values()
            self._of = of

"""What batches and drafts cost on this machine, timed when a pair is loaded.

Without it, the automatic draft length would have to try batch widths in the user's replies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TypeVar

from eaglechat.engine.drafters.base import Drafter, ProcessError
from eaglechat.engine.drafters.proposal import Limits
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.wire.errors import DecodeError
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, ms_since
from eaglechat.wire.worker import check

CALIBRATED_WIDTHS = (1, 2, 4, 8, N_DRAFT_MAX_LIMIT + 1, 3, 5, 6, 7, 9)
"""Batch widths in the order in which they are timed. Times rise in steps: llama.cpp's kernels for
repacked weights compute four rows at a time, so that eight may take less than seven, and from nine
rows on it uses other CUDA kernels. So no width up to there is guessed if there is time."""
CALIBRATED_DRAFT = 3
"""Tokens of the drafts that are timed, if the drafter proposes that many."""
BUDGET_S = 0.6
"""Seconds for the whole calibration: more would be felt as a slow load."""
_REPEATS = 2
"""Measurements of each time beside that of one row: the first builds the graph."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Calibration:
    """Milliseconds, each measured alone; None if there was no time to measure it."""

    verify: tuple[tuple[int, float], ...] = ()
    """Pairs (batch width, time of a decode that outputs all rows and exports hidden states), widths
    ascending from 1."""
    draft: float | None = None
    """A draft of `CALIBRATED_DRAFT` tokens, or `longest` if that is fewer, after a round that
    accepted one."""
    longest: int = N_DRAFT_MAX_LIMIT
    """The most tokens that the drafter proposes."""
    in_one_pass: bool = False
    """As `Drafter.in_one_pass`."""


NOT_CALIBRATED = Calibration()


def calibrate(target: Context, model: Drafter | None) -> Calibration:
    """Time what fits into `BUDGET_S`, narrow batches first; without a draft model, the target
    alone. On a slow machine that is one token and one draft.

    Both KV caches must be empty, and are left empty. A pair that fails is not calibrated: the first
    reply will tell the user what is wrong. Raises Cancelled.
    """
    with Batch(target) as batch:
        stopwatch = _Stopwatch(target, model, batch)
        try:
            return stopwatch.calibration()
        except (DecodeError, ProcessError):
            return NOT_CALIBRATED
        finally:
            stopwatch.empty()


class _Stopwatch:
    """Times decodes. Other work on the machine can only make a decode slower, so of several times
    of the target the shortest is used."""

    def __init__(self, target: Context, model: Drafter | None, batch: Batch) -> None:
        self._target, self._model, self._batch = target, model, batch
        self._deadline = 0.0
        self._token = max(target.model.bos, 0)

    def calibration(self) -> Calibration:
        first = self._verify(1)
        # The first draft reads its weights into memory. It counts only if there is time for no
        # other.
        rounds = [self._round(2)]
        self._deadline = time.perf_counter() + BUDGET_S - (first + rounds[0][0]) / 1000.0
        ms = {1: min([first, *self._repeated(self._plain, 2.0 * first)])}
        drafts: list[float] = []
        for width in CALIBRATED_WIDTHS[1:]:
            wider = [known for other, known in ms.items() if other > width]
            # Twice as many rows take at most twice as long.
            expected = min(wider, default=2.0 * rounds[-1][0])
            again = [*self._repeated(partial(self._round, width), expected)]
            if not again and width > 2:
                break
            rounds = again or rounds
            ms[width] = min(verify_ms for verify_ms, _ in rounds)
            drafts += [draft_ms for _, draft_ms in rounds if draft_ms is not None]
            if not again:
                break
        verify = tuple(sorted(ms.items()))
        if self._model is None:
            return Calibration(verify)
        return Calibration(verify, median(drafts), self._model.longest, self._model.in_one_pass)

    def _repeated(self, measure: Callable[[], _T], expected_ms: float) -> Iterator[_T]:
        """Up to `_REPEATS` measurements, each only if there is time for one that takes
        `expected_ms`."""
        for _ in range(_REPEATS):
            if time.perf_counter() + expected_ms / 1000.0 > self._deadline:
                return
            yield measure()

    def empty(self) -> None:
        if self._model is not None:
            self._model.resume(())
        self._target.forget(0, 0)

    def _plain(self) -> float:
        """Milliseconds of a plain token behind another one."""
        self._verify(1)
        return self._verify(1, n_past=1)

    def _round(self, width: int) -> tuple[float, float | None]:
        """Milliseconds of verifying a batch of `width` rows, and of drafting behind its first two.

        They alternate as in a reply, since each finds CPU caches that the other has filled.
        """
        verify_ms = self._verify(width)
        if self._model is None:
            return verify_ms, None
        self._model.resume((self._token,) * 2)
        self._target.forget(0, 2)
        started = time.perf_counter()
        self._model.propose(2, self._token, Limits(CALIBRATED_DRAFT))
        return verify_ms, ms_since(started)

    def _verify(self, width: int, n_past: int = 0) -> float:
        """Milliseconds of decoding `width` tokens and reading their logits."""
        # Not during a decode: asking there takes longer than a small model computes.
        check()
        if n_past == 0:
            self.empty()
        started = time.perf_counter()
        self._batch.clear()
        self._batch.add_tokens([self._token] * width, n_past, 0, output=True)
        status = self._target.decode(self._batch)
        if status != 0:
            raise DecodeError(f"the target failed to decode (llama.cpp status {status})")
        if self._model is not None:
            self._model.see(self._batch)
        for row in range(width):
            self._target.logits(row).argmax()
        return ms_since(started)

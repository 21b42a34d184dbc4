"""What batches of each width and drafts cost on this machine, timed before the first reply.

Without it an automatic draft length would have to try widths in the user's replies, where the
dear ones cost the most.
"""

from __future__ import annotations

import time
from statistics import median

from eaglechat.engine.auto.calibration import (
    CALIBRATED_DRAFT,
    CALIBRATED_WIDTHS,
    NOT_CALIBRATED,
    Calibration,
)
from eaglechat.engine.clock import ms_since
from eaglechat.engine.drafters.base import MOST_CAUGHT_UP, Drafter, Limits
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.wire.errors import DecodeError, ProcessError

_REPEATS = 3
"""Of each width; the first also builds the graph."""
_CATCH_UPS = 2
_BUDGET_S = 0.6
_UNSTEADY = 1.5
"""A machine on which the first width takes this much longer, or shorter, afterwards was busy."""


def calibrate(target: Context, drafter: Drafter) -> Calibration:
    """Time what fits into some tenths of a second, narrow batches first.

    Both KV caches must be empty, and are left so. A pair that cannot be timed is not calibrated:
    what ails it shows in the first reply, where the user is told.
    """
    try:
        with Batch(target) as batch:
            return Stopwatch(target, drafter, batch).calibration()
    except (DecodeError, ProcessError):
        return NOT_CALIBRATED
    finally:
        drafter.resume((), to_draft=False)
        target.forget(0, 0)


class Stopwatch:
    """Delays only ever add: of what is timed twice, the least is nearest the truth."""

    def __init__(self, target: Context, drafter: Drafter, batch: Batch) -> None:
        self._target, self._drafter, self._batch = target, drafter, batch
        self._token = max(target.model.bos, 0)

    def calibration(self) -> Calibration:
        # The first decode and the first draft bring weights into memory.
        self._plain()
        self._round(2)
        deadline = time.perf_counter() + _BUDGET_S
        first = self._plain()
        verify, drafts = [(1, first)], []
        for width in CALIBRATED_WIDTHS[1:]:
            started = time.perf_counter()
            times = [self._round(width) for _ in range(_REPEATS)]
            verify.append((width, min(verify_ms for verify_ms, _ in times)))
            drafts += [draft_ms for _, draft_ms in times]
            now = time.perf_counter()
            # The next width takes up to twice as long.
            if now + 2.0 * (now - started) > deadline:
                break
        again = self._plain()
        if max(first, again) > _UNSTEADY * min(first, again):
            return NOT_CALIBRATED
        verify[0] = (1, min(first, again))
        all_timed = verify[-1][0] == CALIBRATED_WIDTHS[-1]
        return Calibration(
            tuple(verify), median(drafts), self._catch_up_row() if all_timed else None
        )

    def _plain(self) -> float:
        """Milliseconds of a token decoded plainly, after another one."""
        self._empty()
        self._verify(1, 0)
        return self._verify(1, 1)

    def _round(self, width: int) -> tuple[float, float]:
        """Milliseconds of verifying a batch of this width, and of drafting after its first two
        rows were accepted: by turns as in a reply, since each finds caches that the other filled.
        """
        self._empty()
        verify_ms = self._verify(width, 0)
        self._drafter.resume((self._token,) * 2, to_draft=False)
        self._target.forget(0, 2)
        started = time.perf_counter()
        self._drafter.propose(2, self._token, Limits(CALIBRATED_DRAFT))
        return verify_ms, ms_since(started)

    def _verify(self, width: int, n_past: int) -> float:
        started = time.perf_counter()
        self._decode(width, n_past)
        for row in range(width):
            self._target.logits(row).argmax()
        return ms_since(started)

    def _catch_up_row(self) -> float:
        """Milliseconds of one of the rows that the draft takes in when it begins in mid-reply.

        The first time also brings in the memory for so many at once."""
        times = []
        for _ in range(_CATCH_UPS):
            self._empty()
            self._decode(min(MOST_CAUGHT_UP + 1, self._target.n_batch), 0, output=False)
            rows = self._drafter.waiting - 1
            started = time.perf_counter()
            self._drafter.take_in()
            times.append(ms_since(started) / rows)
        return min(times)

    def _empty(self) -> None:
        self._drafter.resume((), to_draft=False)
        self._target.forget(0, 0)

    def _decode(self, width: int, first: int, *, output: bool = True) -> None:
        self._batch.clear()
        self._batch.add_tokens([self._token] * width, first, 0, output=output)
        status = self._target.decode(self._batch)
        if status != 0:
            raise DecodeError(f"the target failed to decode (llama.cpp status {status})")
        self._drafter.see(self._batch)

"""What batches and drafts cost on this machine, timed before the first reply.

Without it an automatic draft length would have to try widths in the user's replies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import TypeVar

from eaglechat.engine.auto.calibration import (
    CALIBRATED_DRAFT,
    CALIBRATED_TREE,
    CALIBRATED_WIDTHS,
    NOT_CALIBRATED,
    Calibration,
)
from eaglechat.engine.clock import ms_since
from eaglechat.engine.drafters.base import MOST_CAUGHT_UP, Drafter, Limits, Proposal
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.wire.errors import DecodeError, LoadCancelledError, ProcessError

_REPEATS = 3
"""Of everything: the first builds the graph, and one of the others may meet a delay."""
_BUDGET_S = 0.6
"""More would be felt as a slow load."""

_T = TypeVar("_T")


def calibrate(
    target: Context, drafter: Drafter | None, cancelled: Callable[[], bool] = lambda: False
) -> Calibration:
    """Time what fits into some tenths of a second, narrow batches first; without a drafter, the
    target alone. On a slow machine, that is one token and one draft.

    Both KV caches must be empty, and are left so. A pair that cannot be timed is not calibrated:
    what is wrong with it shows in the first reply, where the user is told.
    Raises LoadCancelledError.
    """
    with Batch(target) as batch:
        stopwatch = Stopwatch(target, drafter, batch, cancelled)
        try:
            return stopwatch.calibration()
        except (DecodeError, ProcessError):
            return NOT_CALIBRATED
        finally:
            stopwatch.empty()


class Stopwatch:
    """Other work only ever adds to a time: of several, the least is nearest the truth."""

    def __init__(
        self,
        target: Context,
        drafter: Drafter | None,
        batch: Batch,
        cancelled: Callable[[], bool],
    ) -> None:
        self._target, self._drafter, self._batch = target, drafter, batch
        self._cancelled = cancelled
        self._deadline = 0.0
        self._token = max(target.model.bos, 0)

    def calibration(self) -> Calibration:
        first = self._verify(1)
        # The first draft brings its weights into memory. It counts where there is no time for more.
        rounds = [self._round(2)]
        self._deadline = time.perf_counter() + _BUDGET_S - (first + rounds[0][0]) / 1000.0
        verify = [(1, min([first, *self._repeated(self._plain, 2.0 * first)]))]
        drafts: list[float] = []
        for width in CALIBRATED_WIDTHS[1:]:
            # A width takes up to twice as long as the one before.
            expected = 2.0 * rounds[-1][0]
            again = [*self._repeated(partial(self._round, width), expected)]
            if not again and width > 2:
                break
            rounds = again or rounds
            verify.append((width, min(verify_ms for verify_ms, _ in rounds)))
            drafts += [draft_ms for _, draft_ms in rounds if draft_ms is not None]
            if not again:
                break
        else:
            if self._drafter is not None:
                draft_ms = median(drafts)
                measure = partial(self._catch_up_row, self._drafter)
                row = min(self._repeated(measure, expected), default=None)
                return Calibration(tuple(verify), draft_ms, row, self._sibling(draft_ms))
        return Calibration(tuple(verify), median(drafts) if drafts else None)

    def _repeated(self, measure: Callable[[], _T], expected_ms: float) -> Iterator[_T]:
        """What is measured, several times or as often as there is time, where it is expected to
        take so long once."""
        for _ in range(_REPEATS):
            if time.perf_counter() + expected_ms / 1000.0 > self._deadline:
                return
            yield measure()

    def empty(self) -> None:
        """Forget what is in both KV caches."""
        if self._drafter is not None:
            self._drafter.resume((), to_draft=False)
        self._target.forget(0, 0)

    def _plain(self) -> float:
        """Milliseconds of a token decoded plainly, after another one."""
        self._verify(1)
        return self._verify(1, n_past=1)

    def _round(self, width: int) -> tuple[float, float | None]:
        """Milliseconds of verifying a batch of this width, and of drafting after its first two
        rows were accepted: by turns as in a reply, since each finds caches that the other filled.
        """
        verify_ms = self._verify(width)
        if self._drafter is None:
            return verify_ms, None
        return verify_ms, self._draft(self._drafter, Limits(CALIBRATED_DRAFT))[0]

    def _draft(self, drafter: Drafter, limits: Limits) -> tuple[float, Proposal]:
        """Milliseconds of drafting behind the first two rows of a batch just verified."""
        drafter.resume((self._token,) * 2, to_draft=False)
        self._target.forget(0, 2)
        started = time.perf_counter()
        proposal = drafter.propose(2, self._token, limits)
        return ms_since(started), proposal

    def _sibling(self, draft_ms: float) -> float | None:
        """Milliseconds of a token beside others in a tree, where a chain takes so many."""
        step_ms = draft_ms / (CALIBRATED_DRAFT + 1)
        of_each = []
        limits = Limits(CALIBRATED_TREE, is_tree=True)

        def grow() -> tuple[float, Proposal]:
            assert self._drafter is not None
            self._verify(2)
            return self._draft(self._drafter, limits)

        for ms, proposal in self._repeated(grow, 4.0 * draft_ms):
            n_siblings = len(proposal) - proposal.depth
            if n_siblings:
                of_each.append((ms - step_ms * (proposal.depth + 1)) / n_siblings)
        return max(0.0, min(of_each)) if of_each else None

    def _catch_up_row(self, drafter: Drafter) -> float:
        """Milliseconds of one of the rows that the draft takes in when it begins in mid-reply."""
        self._verify(min(MOST_CAUGHT_UP + 1, self._target.n_batch), output=False)
        rows = drafter.waiting - 1
        started = time.perf_counter()
        drafter.take_in()
        return ms_since(started) / rows

    def _verify(self, width: int, n_past: int = 0, *, output: bool = True) -> float:
        """Milliseconds of decoding so many tokens, and of reading what comes out."""
        # Not within a decode: being asked there takes longer than a small model computes.
        if self._cancelled():
            raise LoadCancelledError("the load was cancelled")
        if n_past == 0:
            self.empty()
        started = time.perf_counter()
        self._batch.clear()
        self._batch.add_tokens([self._token] * width, n_past, 0, output=output)
        status = self._target.decode(self._batch)
        if status != 0:
            raise DecodeError(f"the target failed to decode (llama.cpp status {status})")
        if self._drafter is not None:
            self._drafter.see(self._batch)
        for row in range(width if output else 0):
            self._target.logits(row).argmax()
        return ms_since(started)

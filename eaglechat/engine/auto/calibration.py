"""What batches and drafts cost on this machine, timed when a pair is loaded.

Without it, the automatic draft length would have to try batch widths in the user's replies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import TypeVar

from eaglechat.engine.clock import ms_since
from eaglechat.engine.drafters.base import MOST_WAITING, Drafter, Limits, Proposal
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.wire.cancelling import check
from eaglechat.wire.errors import DecodeError, DrafterError
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

CALIBRATED_WIDTHS = (1, 2, 4, 8, 9, N_DRAFT_MAX_LIMIT + 1)
"""Batch widths that are timed. From 9 rows on llama.cpp uses other CUDA kernels than up to 8."""
CALIBRATED_DRAFT = 3
"""Tokens of the drafts that are timed, if the drafter proposes that many."""
CALIBRATED_TREE = 8
"""Tokens of the tree that is timed."""
BUDGET_S = 0.6
"""Seconds for the whole calibration: more would be felt as a slow load."""
_REPEATS = 3
"""Measurements of each time: the first builds the graph, another may meet a delay."""

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
    catch_up_row: float | None = None
    """One row taken in, when many wait."""
    sibling: float | None = None
    """One token of a tree beside those of its longest path."""
    longest_draft: float | None = None
    """A draft of `longest` tokens, if one pass drafts them."""
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
        except (DecodeError, DrafterError):
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
        verify = [(1, min([first, *self._repeated(self._plain, 2.0 * first)]))]
        drafts: list[float] = []
        for width in CALIBRATED_WIDTHS[1:]:
            # A width takes at most twice as long as the one before.
            expected = 2.0 * rounds[-1][0]
            again = [*self._repeated(partial(self._round, width), expected)]
            if not again and width > 2:
                break
            rounds = again or rounds
            verify.append((width, min(verify_ms for verify_ms, _ in rounds)))
            drafts += [draft_ms for _, draft_ms in rounds if draft_ms is not None]
            if not again:
                break
        if self._model is None:
            return Calibration(tuple(verify))
        model, draft_ms = self._model, median(drafts)
        seen = Calibration(
            tuple(verify), draft_ms, longest=model.longest, in_one_pass=model.in_one_pass
        )
        if len(verify) < len(CALIBRATED_WIDTHS):
            return seen
        row = min(self._repeated(partial(self._catch_up_row, model), expected), default=None)
        sibling = self._sibling(model, draft_ms) if model.grows_trees else None
        whole = self._longest_draft(model, draft_ms) if model.in_one_pass else None
        return replace(seen, catch_up_row=row, sibling=sibling, longest_draft=whole)

    def _repeated(self, measure: Callable[[], _T], expected_ms: float) -> Iterator[_T]:
        """Up to `_REPEATS` measurements, each only if there is time for one that takes
        `expected_ms`."""
        for _ in range(_REPEATS):
            if time.perf_counter() + expected_ms / 1000.0 > self._deadline:
                return
            yield measure()

    def empty(self) -> None:
        """Empty both KV caches."""
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
        return verify_ms, self._draft(self._model, Limits(CALIBRATED_DRAFT))[0]

    def _draft(self, model: Drafter, limits: Limits) -> tuple[float, Proposal]:
        """Milliseconds of a draft behind the first two rows of the batch just verified, and the
        draft."""
        model.resume((self._token,) * 2)
        self._target.forget(0, 2)
        started = time.perf_counter()
        proposal = model.propose(2, self._token, limits)
        return ms_since(started), proposal

    def _sibling(self, model: Drafter, draft_ms: float) -> float | None:
        """Milliseconds of one token beside the longest path of a tree, if a chain of
        `CALIBRATED_DRAFT` tokens takes `draft_ms`; None without siblings or time."""
        step_ms = draft_ms / (CALIBRATED_DRAFT + 1)
        limits = Limits(CALIBRATED_TREE, is_tree=True)
        of_each = []

        def grow() -> tuple[float, Proposal]:
            self._verify(2)
            return self._draft(model, limits)

        for ms, proposal in self._repeated(grow, 4.0 * draft_ms):
            n_siblings = len(proposal) - proposal.depth
            if n_siblings:
                of_each.append((ms - step_ms * (proposal.depth + 1)) / n_siblings)
        return max(0.0, min(of_each)) if of_each else None

    def _longest_draft(self, model: Drafter, draft_ms: float) -> float | None:
        """Milliseconds of the longest draft, if one of `CALIBRATED_DRAFT` tokens takes `draft_ms`;
        None if it is no longer than that, or without time."""
        longest = model.longest
        if longest <= CALIBRATED_DRAFT:
            return None

        def fill() -> float:
            self._verify(2)
            return self._draft(model, Limits(longest))[0]

        times = [*self._repeated(fill, draft_ms * longest / CALIBRATED_DRAFT)]
        return median(times) if times else None

    def _catch_up_row(self, model: Drafter) -> float:
        """Milliseconds of one row that a draft model takes in when it begins in mid-reply."""
        self._verify(min(MOST_WAITING + 1, self._target.n_batch), output=False)
        rows = model.waiting - 1
        started = time.perf_counter()
        model.take_in()
        return ms_since(started) / rows

    def _verify(self, width: int, n_past: int = 0, *, output: bool = True) -> float:
        """Milliseconds of decoding `width` tokens and reading their logits."""
        # Not during a decode: asking there takes longer than a small model computes.
        check()
        if n_past == 0:
            self.empty()
        started = time.perf_counter()
        self._batch.clear()
        self._batch.add_tokens([self._token] * width, n_past, 0, output=output)
        status = self._target.decode(self._batch)
        if status != 0:
            raise DecodeError(f"the target failed to decode (llama.cpp status {status})")
        if self._model is not None:
            self._model.see(self._batch)
        for row in range(width if output else 0):
            self._target.logits(row).argmax()
        return ms_since(started)

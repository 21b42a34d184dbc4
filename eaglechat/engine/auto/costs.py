"""What rounds cost: a calibration that every round corrects, by Kalman filters.

One filter estimates the times of verifying, by batch width; each range of context lengths has its
own. Another estimates the times of drafting. The time of one width also says something of the
others: that the whole machine has become slower, or that all wide batches are cheaper than
calibrated. The covariances say how much.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import numpy.typing as npt

from eaglechat.engine.auto.calibration import CALIBRATED_DRAFT, Calibration
from eaglechat.engine.auto.kept import Learnt
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

Array = npt.NDArray[np.float64]

CONTEXT_BUCKET = 256
"""Tokens in the first context bucket; each further bucket ends at twice the length. llama.cpp
attends over a multiple of 256 cells, so the time of a decode steps up there."""
NOISE = 0.05
"""Relative standard deviation of single times on a machine that does little else."""
_OUTLIER = 3.0
"""A time further from its estimate than this many standard deviations is cut off there: other work
on the machine delayed it."""
_DOUBT = 0.3
"""Relative standard error of a calibrated time, before any round has confirmed it."""
_ANOTHER_MACHINE = 0.7
"""How far two batch widths may be apart from what was learnt of them, in logarithms, for it to hold
for this machine: one takes twice as long, compared with the other."""
_DRIFT = 0.005
"""Relative standard deviation of the change of a true time in one round: 4% in 64 rounds."""
_GUESS = 0.1
"""Used until measured. One more verify row, or one draft step: this share of a plain decode."""
_ROW, _SIBLING = 0.3, 0.25
"""Used until rounds have shown it. One waiting row, and one more token on a level of a tree: these
shares of a draft step."""

_WIDTHS = np.arange(1, N_DRAFT_MAX_LIMIT + 2)
_ALIKE = np.sqrt(np.minimum.outer(_WIDTHS, _WIDTHS) / np.maximum.outer(_WIDTHS, _WIDTHS))
_ALIKE[0, :] = _ALIKE[:, 0] = 0.0
_SHARED = 1.0 + _ALIKE
"""How much an error at one batch width says about another: their covariance, in units of the
variance of one part. All widths share 1, the speed of the machine; two widths above 1 share up to
1 more, the closer they are."""


def context_bucket(n_past: int) -> int:
    """The bucket of a context length: 0 up to 255 tokens, 1 up to 511, 2 up to 1,023, and so on."""
    return (n_past // CONTEXT_BUCKET).bit_length()


class _Filter:
    """A Kalman filter: estimates numbers that drift, from noisy weighted sums of them."""

    def __init__(self, mean: Array, covariance: Array, drift: Array) -> None:
        """The covariances of the errors of `mean`, and of what the numbers change by in a round."""
        self.mean, self.covariance, self._drift = mean, covariance, drift

    def age(self, rounds: int) -> None:
        self.covariance += rounds * self._drift

    def see(self, weights: Array, value: float, noise: float) -> None:
        """The sum with these weights was measured as `value`, with standard deviation `noise`."""
        shared = self.covariance @ weights
        variance = float(weights @ shared) + noise**2
        most = _OUTLIER * variance**0.5
        surprise = min(max(value - float(weights @ self.mean), -most), most)
        self.mean += shared * (surprise / variance)
        self.covariance += self._drift - np.outer(shared, shared) / variance


class Costs:
    """Milliseconds of verifying a batch, and of drafting. A draft step is one decode of the draft:
    a token of a chain, or a level of a tree. In a draft of one pass it is a row.
    """

    def __init__(self, calibration: Calibration, learnt: Learnt | None = None) -> None:
        """The calibration has at least the time of width 1. `learnt` is from an earlier start."""
        self._table = _table(calibration.verify)
        self._first = np.zeros(len(_WIDTHS)), _DOUBT**2 * _SHARED
        """What the filter of a first context begins with."""
        self._contexts: dict[int, _Filter] = {}
        self._left_at: dict[int, int] = {}
        self._bucket = self._rounds = 0
        longest, in_one_pass = calibration.longest, calibration.in_one_pass
        n_timed = min(CALIBRATED_DRAFT, longest)
        draft = calibration.draft or (n_timed + 1) * _GUESS * self._table[0]
        # Beginning a draft is assumed to take as long as a step.
        step = draft / ((longest if in_one_pass else n_timed) + 1)
        parts = step * np.array([1.0, 1.0, _ROW, _SIBLING])
        doubted = np.diag(parts**2)
        if in_one_pass:
            # A row costs nothing until rounds have shown what it does.
            parts[:2], doubted[0, 0] = (draft, 0.0), draft**2
        self._draft = _Filter(parts, _DOUBT**2 * doubted, _DRIFT**2 * doubted)
        if learnt is not None:
            self._recall(learnt, [width - 1 for width, _ in calibration.verify])

    def _recall(self, learnt: Learnt, timed: list[int]) -> None:
        """Go on from what was learnt, unless the machine is another one by now: then batches of the
        widths at the indices `timed` take other times, compared with each other. How fast it is
        altogether, the calibration knows best."""
        off = np.log(np.array(learnt.verify) / self._table)
        if np.ptp(off[timed]) > _ANOTHER_MACHINE:
            return
        stale = (1.0 - learnt.certainty) * _DOUBT
        doubt = np.diag(np.square(learnt.doubts)) + stale**2 * _SHARED + _DOUBT**2
        _, covariance = self._first
        gain = np.linalg.solve(covariance + doubt, covariance).T
        self._first = gain @ off, covariance - gain @ covariance
        usual, parts = np.array([1.0, CALIBRATED_DRAFT, 2.0, 0.0]), np.array(learnt.draft)
        if usual @ parts > 0.0:
            self._draft.mean = parts * float(usual @ self._draft.mean) / float(usual @ parts)

    def learnt(self) -> tuple[Array, Array, Array]:
        """Milliseconds of verifying a batch in the latest context, their relative standard errors
        compared with that of one row, and the parts of a draft."""
        covariance = self._at(self._bucket).covariance
        return self.verify(self._bucket), _doubts(covariance), self._draft.mean

    def see_verify(self, width: int, bucket: int, ms: float) -> None:
        """Verifying a batch of `width` rows took `ms` in a context of this bucket."""
        self._rounds += 1
        off = log(ms / self._table[width - 1])
        self._at(bucket).see(np.eye(len(_WIDTHS))[width - 1], off, NOISE)

    def see_draft(self, n_steps: int, n_waiting: int, ms: float, n_siblings: int = 0) -> None:
        """Taking in `n_waiting` rows and drafting `n_steps` steps, with `n_siblings` tokens beside
        the longest path, took `ms`."""
        parts = np.array([1.0, n_steps, n_waiting, n_siblings])
        self._draft.see(parts, ms, NOISE * float(parts @ self._draft.mean))
        np.maximum(self._draft.mean, 0.0, out=self._draft.mean)

    def verify(self, bucket: int) -> Array:
        """Milliseconds of verifying a batch, by width from 1 on. A width that seems to take longer
        than as many single rows was delayed by other work when it was timed."""
        times: Array = self._table * np.exp(self._at(bucket).mean)
        at_most: Array = np.minimum(times, _WIDTHS * times[0])
        return at_most

    def hoped(self, bucket: int) -> Array:
        """`verify`, with each width one standard error cheaper relative to width 1."""
        cheaper: Array = np.exp(-_doubts(self._at(bucket).covariance))
        return self.verify(bucket) * cheaper

    def plain_error(self, bucket: int) -> float:
        return sqrt(self._at(bucket).covariance[0, 0])

    def of_draft(self, n_steps: int, n_waiting: int, n_siblings: int = 0) -> float:
        """Expected milliseconds of a draft; arguments as for `see_draft`."""
        return float(np.array([1.0, n_steps, n_waiting, n_siblings]) @ self._draft.mean)

    def draft(self, depths: Array) -> Array:
        """Milliseconds of drafting by length from 0 on; `depths` are by length from 1 on."""
        begin, step, _, sibling = self._draft.mean
        lengths = np.arange(1.0, len(depths) + 1.0)
        return np.concatenate(([0.0], begin + step * depths + sibling * (lengths - depths)))

    def catch_up(self, n_waiting: int) -> float:
        return float(self._draft.mean[2]) * n_waiting

    def _at(self, bucket: int) -> _Filter:
        """The filter of a bucket. A new one begins with the estimates of the nearest bucket."""
        if bucket not in self._contexts:
            mean, covariance = self._first
            if self._contexts:
                near = self._contexts[min(self._contexts, key=lambda other: abs(other - bucket))]
                mean, covariance = near.mean, near.covariance + 4.0 * NOISE**2 * _SHARED
            # Copies: a filter changes its arrays.
            new = _Filter(mean.copy(), covariance.copy(), _DRIFT**2 * _SHARED)
            self._contexts[bucket] = new
        elif bucket != self._bucket:
            self._contexts[bucket].age(self._rounds - self._left_at.get(bucket, 0))
        self._bucket, self._left_at[bucket] = bucket, self._rounds
        return self._contexts[bucket]


def _doubts(covariance: Array) -> Array:
    """Relative standard errors of the times of all widths, compared with that of one row."""
    variance = np.diag(covariance) + covariance[0, 0] - 2.0 * covariance[0]
    doubts: Array = np.sqrt(np.maximum(variance, 0.0))
    return doubts


def _table(verify: tuple[tuple[int, float], ...]) -> Array:
    """Milliseconds by width, interpolated linearly between the calibrated widths, and beyond the
    last with their mean slope."""
    widths, ms = zip(*verify, strict=True)
    slope = _GUESS * ms[0] if len(ms) < 2 else (ms[-1] - ms[0]) / (widths[-1] - widths[0])
    beyond = np.maximum(_WIDTHS - widths[-1], 0)
    table: Array = np.interp(_WIDTHS, widths, ms) + max(0.0, slope) * beyond
    return table

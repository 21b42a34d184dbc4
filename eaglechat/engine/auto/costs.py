"""What rounds cost: a calibration, corrected by every round that is made.

Two Kalman filters. All times are one machine's, so what a round shows of one width says something
of the others: that the whole machine is slower now, or that wide batches are cheaper than was
calibrated. How much, the covariances say.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import numpy.typing as npt

from eaglechat.engine.auto.calibration import CALIBRATED_DRAFT, Calibration
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

Array = npt.NDArray[np.float64]

CONTEXT_BUCKET = 256
"""Tokens of the first context bucket; each further one doubles the context. llama.cpp attends over
a multiple of 256 cells, so costs step up there: with small models by a quarter."""
NOISE = 0.05
"""Relative spread of single times on a machine that does little else."""
_OUTLIER = 3.0
"""Standard deviations that a time may surprise by: what is beyond is other work's delay."""
_DOUBT = 0.3
"""Relative error of a calibration, and of what another context tells of this one."""
_DRIFT = 0.005
"""Relative change of the truth in a round: 4% in 64 rounds."""
_GUESS = 0.1
"""Before it is known: a further row or a draft step, of a plain token; a waiting row, of a step."""
_SIBLING = 0.25
"""The same of a token beside others in a tree, of a step."""

_WIDTHS = np.arange(1, N_DRAFT_MAX_LIMIT + 2)
_ALIKE = np.sqrt(np.minimum.outer(_WIDTHS, _WIDTHS) / np.maximum.outer(_WIDTHS, _WIDTHS))
_ALIKE[0, :] = _ALIKE[:, 0] = 0.0
_SHARED = 1.0 + _ALIKE
"""Covariance of two widths: the machine's, and that of drafted widths by how near they are."""


def context_bucket(n_past: int) -> int:
    """The bucket of a context length: 0 up to 255 tokens, 1 up to 511, 2 up to 1,023, ..."""
    return (n_past // CONTEXT_BUCKET).bit_length()


class _Filter:
    """Estimates of numbers that drift, from noisy weighted sums of them."""

    def __init__(self, mean: Array, covariance: Array) -> None:
        self.mean, self.covariance = mean, _DOUBT**2 * covariance
        self._drift = _DRIFT**2 * covariance

    def age(self, rounds: int) -> None:
        self.covariance += rounds * self._drift

    def see(self, weights: Array, value: float, noise: float) -> None:
        """The sum with these weights was `value`, give or take `noise`."""
        shared = self.covariance @ weights
        variance = float(weights @ shared) + noise**2
        most = _OUTLIER * variance**0.5
        surprise = min(max(value - float(weights @ self.mean), -most), most)
        self.mean += shared * (surprise / variance)
        self.covariance += self._drift - np.outer(shared, shared) / variance


class Costs:
    """Milliseconds of verifying, by batch width and context, and of drafting, by steps: a step is
    a token of a chain, or a level of a tree."""

    def __init__(self, calibration: Calibration) -> None:
        """A calibration of at least the first width."""
        self._table = _table(calibration.verify)
        self._contexts: dict[int, _Filter] = {}
        self._left_at: dict[int, int] = {}
        self._bucket = self._rounds = 0
        step = (calibration.draft or 0.0) / (CALIBRATED_DRAFT + 1) or _GUESS * self._table[0]
        row = calibration.catch_up_row or _GUESS * step
        usual = np.array([step, step, row, calibration.sibling or _SIBLING * step])
        self._draft = _Filter(usual, np.diag(usual**2))

    def see_verify(self, width: int, bucket: int, ms: float) -> None:
        """Verifying so many tokens took `ms` in this context."""
        self._rounds += 1
        off = log(ms / self._table[width - 1])
        self._at(bucket).see(np.eye(len(_WIDTHS))[width - 1], off, NOISE)

    def see_draft(self, n_steps: int, n_waiting: int, ms: float, n_siblings: int = 0) -> None:
        """Taking in the rows that waited and drafting so many steps, with tokens beside those of
        the longest path, took `ms`."""
        parts = np.array([1.0, n_steps, n_waiting, n_siblings])
        self._draft.see(parts, ms, NOISE * float(parts @ self._draft.mean))
        np.maximum(self._draft.mean, 0.0, out=self._draft.mean)

    def verify(self, bucket: int) -> Array:
        """By width from 1 on."""
        return self._table * np.exp(self._at(bucket).mean)

    def hoped(self, bucket: int) -> Array:
        """As `verify`, each a standard error cheaper beside a plain token."""
        covariance = self._at(bucket).covariance
        variance = np.diag(covariance) + covariance[0, 0] - 2.0 * covariance[0]
        cheaper: Array = np.exp(-np.sqrt(np.maximum(variance, 0.0)))
        return self.verify(bucket) * cheaper

    def plain_error(self, bucket: int) -> float:
        """Relative standard error of a plain token's time."""
        return sqrt(self._at(bucket).covariance[0, 0])

    def of_draft(self, n_steps: int, n_waiting: int, n_siblings: int = 0) -> float:
        """Of what `see_draft` sees."""
        return float(np.array([1.0, n_steps, n_waiting, n_siblings]) @ self._draft.mean)

    def draft(self, depths: Array) -> Array:
        """By length from 0 on, of drafts that are this deep by length from 1 on."""
        begin, step, _, sibling = self._draft.mean
        lengths = np.arange(1.0, len(depths) + 1.0)
        return np.concatenate(([0.0], begin + step * depths + sibling * (lengths - depths)))

    def catch_up(self, n_waiting: int) -> float:
        """Of taking in so many rows."""
        return float(self._draft.mean[2]) * n_waiting

    def _at(self, bucket: int) -> _Filter:
        """The context's filter, which begins with what is known of the nearest context."""
        if bucket not in self._contexts:
            near = min(self._contexts, key=lambda other: abs(other - bucket), default=None)
            self._contexts[bucket] = _Filter(np.zeros(len(_WIDTHS)), _SHARED)
            if near is not None:
                known = self._contexts[near]
                self._contexts[bucket].mean = known.mean.copy()
                self._contexts[bucket].covariance = known.covariance + 4.0 * NOISE**2 * _SHARED
        elif bucket != self._bucket:
            self._contexts[bucket].age(self._rounds - self._left_at.get(bucket, 0))
        self._bucket, self._left_at[bucket] = bucket, self._rounds
        return self._contexts[bucket]


def _table(verify: tuple[tuple[int, float], ...]) -> Array:
    """Milliseconds by width, on straight lines between those known."""
    widths, ms = zip(*verify, strict=True)
    slope = _GUESS * ms[0] if len(ms) < 2 else (ms[-1] - ms[0]) / (widths[-1] - widths[0])
    beyond = np.maximum(_WIDTHS - widths[-1], 0)
    table: Array = np.interp(_WIDTHS, widths, ms) + max(0.0, slope) * beyond
    return table

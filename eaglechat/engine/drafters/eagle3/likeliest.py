"""The draft's choice among its own vocabulary."""

from __future__ import annotations

from math import exp, isfinite

import numpy as np
import numpy.typing as npt

from eaglechat.engine.llama.bindings import Floats
from eaglechat.engine.llama.objects import DraftHead
from eaglechat.wire.errors import ProcessError

_TOP_K = 10
"""Upstream takes a draft token's probability over this many candidates."""


class Likeliest:
    """Finds a draft's likeliest token in logits that are -inf outside its vocabulary.

    That vocabulary is looked up once: a fraction of the target's, so a fraction of the work. Where
    the draft's head has the same logits in the same order, its graph ends there from then on.
    """

    def __init__(self, head: DraftHead | None = None) -> None:
        self._head = head
        if head is not None:  # One before this may have ended the graphs of the same context.
            head.is_last = False
        self._vocabulary: npt.NDArray[np.intp] | None = None
        self._candidates: Floats = np.empty(0, dtype=np.float32)

    def some(self, logits: Floats, count: int, row: int = 0) -> list[tuple[int, float]]:
        """The `count` likeliest tokens, `_TOP_K` at most, likeliest first, each with its
        probability among the `_TOP_K` likeliest. Raises ProcessError when there is none."""
        vocabulary, candidates = self._of_vocabulary(logits, row)
        n_top = min(_TOP_K, len(candidates))
        top = candidates.argpartition(len(candidates) - n_top)[len(candidates) - n_top :]
        top = top[candidates[top].argsort()[::-1]]
        if not n_top or not isfinite(candidates[top[0]]):
            raise ProcessError("the draft computed no finite logits")
        odds = np.exp(candidates[top] - candidates[top[0]])
        shares = (odds / odds.sum()).tolist()
        return list(zip(vocabulary[top[:count]].tolist(), shares, strict=False))

    def of(self, logits: Floats, row: int = 0) -> tuple[int, float]:
        """The likeliest token of logits [n_vocab] of a row, and its probability among the `_TOP_K`
        likeliest. Raises ProcessError when there is none."""
        vocabulary, candidates = self._of_vocabulary(logits, row)
        best = int(candidates.argmax()) if len(candidates) else -1
        if best < 0 or not isfinite(candidates[best]):
            raise ProcessError("the draft computed no finite logits")
        likeliest = float(candidates[best])
        if len(candidates) > _TOP_K:
            candidates.partition(len(candidates) - _TOP_K)
        top = candidates[-_TOP_K:].tolist()
        return int(vocabulary[best]), 1.0 / sum(exp(logit - likeliest) for logit in top)

    def _of_vocabulary(self, logits: Floats, row: int) -> tuple[npt.NDArray[np.intp], Floats]:
        """The draft's tokens, and their logits; valid until the next call."""
        if self._vocabulary is None:
            self._vocabulary = np.flatnonzero(np.isfinite(logits))
            self._candidates = np.empty(len(self._vocabulary), dtype=np.float32)
        elif self._head is not None and self._head.is_last:
            np.copyto(self._candidates, self._head.logits(row, len(self._vocabulary)))
            return self._vocabulary, self._candidates
        logits.take(self._vocabulary, out=self._candidates, mode="clip")
        if self._head is not None:
            own = self._head.logits(row, len(self._vocabulary))
            self._head.is_last = len(own) > 0 and np.array_equal(own, self._candidates)
        return self._vocabulary, self._candidates

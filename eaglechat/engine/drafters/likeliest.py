"""The likeliest tokens of a draft, among its own vocabulary."""

from __future__ import annotations

from math import isfinite

import numpy as np
import numpy.typing as npt

from eaglechat.engine.llama.bindings import Floats
from eaglechat.engine.llama.objects import DraftHead
from eaglechat.engine.llama.sampler import likeliest
from eaglechat.wire.errors import ProcessError

_TOP_K = 10
"""As in llama.cpp, a draft token's probability is its share among this many likeliest tokens."""


class Likeliest:
    """Finds a draft's likeliest tokens in logits that are -inf outside its vocabulary.

    The draft's vocabulary is a fraction of the target's, and is found once. Once the logits of the
    head itself match, llama.cpp's scatter to the whole vocabulary is skipped (`head.is_last`).
    """

    def __init__(self, head: DraftHead | None = None) -> None:
        self._head = head
        self._vocabulary: npt.NDArray[np.intp] | None = None
        self._candidates: Floats = np.empty(0, dtype=np.float32)

    def top_k(self, logits: Floats, row: int = 0) -> list[tuple[int, float]]:
        """The `_TOP_K` likeliest tokens of a row with logits [n_vocab], likeliest first, each with
        its share among them. Raises ProcessError if no logit is finite."""
        vocabulary, candidates = self._of_vocabulary(logits, row)
        top = likeliest(candidates, _TOP_K)
        if top is None:
            top = candidates.argsort()[: -1 - _TOP_K : -1]
        if not len(top) or not isfinite(candidates[top[0]]):
            raise ProcessError("the draft computed no finite logits")
        odds = np.exp(candidates[top] - candidates[top[0]])
        shares = (odds / odds.sum()).tolist()
        return list(zip(vocabulary[top].tolist(), shares, strict=True))

    def _of_vocabulary(self, logits: Floats, row: int) -> tuple[npt.NDArray[np.intp], Floats]:
        """The tokens of the draft's vocabulary and their logits; valid until the next call."""
        if self._vocabulary is None:
            self._vocabulary = np.flatnonzero(np.isfinite(logits))
            self._candidates = np.empty(len(self._vocabulary), dtype=np.float32)
        elif self._head is not None and self._head.is_last:
            return self._vocabulary, self._head.logits(row, len(self._vocabulary))
        logits.take(self._vocabulary, out=self._candidates, mode="clip")
        if self._head is not None:
            own = self._head.logits(row, len(self._vocabulary))
            self._head.is_last = len(own) > 0 and np.array_equal(own, self._candidates)
        return self._vocabulary, self._candidates

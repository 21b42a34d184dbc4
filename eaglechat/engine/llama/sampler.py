"""Draws the target's tokens from its logits.

Whoever adds Gumbel noise to logits and takes the largest draws from their softmax (the Gumbel-max
trick). The noise of a token depends on the seed, on the place in the text and on the token alone,
so the target draws the same token whatever was drafted.

If a draft has drawn its token, that token is accepted or replaced, so that the result has the
target's distribution. More tokens are accepted in this way than the target would draw itself.
Source: speculative sampling (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from math import log
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from eaglechat.engine.llama.bindings import Floats
from eaglechat.engine.llama.objects import Context
from eaglechat.wire.errors import DecodeError
from eaglechat.wire.protocol import Sampling
from eaglechat.wire.records import Likely

REPEAT_LAST_N = 64
"""How many tokens the repeat penalty looks back on."""
_MOST_LISTED = 256
"""To find more of the likeliest tokens than this, a partition of all is faster."""
_GROUP = 64
"""`likeliest` first looks at the maximum of each group of so many logits."""

# SplitMix64 (Steele, Lea and Flood, 2014): its n-th number follows from its beginning and n.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = 31

_Ids = npt.NDArray[np.intp]
Drawn = tuple[int, Mapping[int, float]]
"""A token that a draft has drawn, and the probabilities that it was drawn with, by token."""


def gumbel(
    seed: int, place: int, ids: Sequence[int] | npt.NDArray[np.integer]
) -> npt.NDArray[np.float64]:
    """The noise [n] of the tokens `ids` [n] at a place: independent numbers of the standard Gumbel
    distribution."""
    beginning = blake2b(b"%d %d" % (seed, place), digest_size=8).digest()
    bits = np.asarray(ids, dtype=np.uint64) * _STEP
    bits += np.frombuffer(beginning, dtype="<u8")
    for shift, factor in _MIX:
        bits ^= bits >> np.uint64(shift)
        bits *= factor
    bits ^= bits >> np.uint64(_LAST_SHIFT)
    # 52 bits and a half, which is never 0 nor 1.
    uniform = ((bits >> np.uint64(12)) + 0.5) * 2.0**-52
    noise: npt.NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


class Sampler:
    """Penalty, top-k, top-p, min-p and temperature, which do what llama.cpp's samplers of these
    names do, and a draw of what they leave; at temperature 0 penalty and argmax."""

    def __init__(self, sampling: Sampling, seed: int, recent: Sequence[int] = ()) -> None:
        """`recent` is the text so far, to which the caller adds what is drawn; the penalty is for
        its last `REPEAT_LAST_N` tokens."""
        self.sampling = sampling
        """May be replaced between two tokens."""
        self.random = Random(seed)
        """For what drafts draw, and for whether it is accepted."""
        self._seed, self._recent = seed, recent

    def sample(self, context: Context, row: int, place: int, drawn: Drawn | None = None) -> int:
        """The token that follows an output row, which stands at a place of the text: the one that a
        draft has drawn if it is accepted, else the target's. Raises DecodeError if the logits are
        not numbers."""
        return self._draw(*self._left(context.logits(row)), place, drawn)

    def look(
        self,
        context: Context,
        row: int,
        place: int,
        drawn: Drawn | None,
        *,
        top: int,
        drafted: Sequence[int],
    ) -> tuple[int, tuple[Likely, ...]]:
        """Like `sample`, and also returns the `top` likeliest tokens, the sampled and the drafted
        ones, the likeliest first. Raises DecodeError as it does."""
        logits = context.logits(row)
        ids, left = self._left(logits)
        sampled = self._draw(ids, left, place, drawn)
        chances = dict(zip(ids.tolist(), _softmax(left).tolist(), strict=True))
        probabilities = _softmax(logits)
        best = np.argpartition(logits, -top)[-top:].tolist()
        seen = sorted({*best, sampled, *drafted}, key=lambda id: (-probabilities[id], id))
        return sampled, tuple(
            Likely(
                id=id,
                text=(context.model.piece(id) or context.model.spelled(id)).decode(
                    "utf-8", errors="replace"
                ),
                probability=float(probabilities[id]),
                chance=chances.get(id, 0.0),
            )
            for id in seen
        )

    def _left(self, logits: Floats) -> tuple[_Ids, Floats]:
        """The tokens that penalty and filters leave, and their logits over the temperature. Raises
        DecodeError."""
        sampling = self.sampling
        logits, top_k = self._penalised(logits), sampling.top_k
        if sampling.temperature <= 0.0:
            best = np.array([logits.argmax()])
            _check_number(logits[best[0]])
            return best, logits[best]
        ids = likeliest(logits, top_k) if 0 < top_k <= _MOST_LISTED else None
        if ids is None:
            _check_number(logits.max())
            ids = np.arange(len(logits))
            if 0 < top_k < len(logits):
                ids = np.argpartition(-logits, top_k - 1)[:top_k]
        left = logits[ids]
        if sampling.top_p < 1.0:
            shares = _softmax(left)
            # The likeliest are sorted until they have `top_p`. All that are less likely than this
            # have less than the rest together.
            likely = np.flatnonzero(shares >= (1.0 - sampling.top_p) / len(shares))
            order = likely[np.argsort(-shares[likely], kind="stable")]
            order = order[: 1 + int(np.searchsorted(shares[order].cumsum(), sampling.top_p))]
            ids, left = ids[order], left[order]
        if sampling.min_p > 0.0:
            kept = left >= left.max() + log(sampling.min_p)
            ids, left = ids[kept], left[kept]
        return ids, left / sampling.temperature

    def _penalised(self, logits: Floats) -> Floats:
        penalty = self.sampling.repeat_penalty
        if penalty == 1.0 or not self._recent:
            return logits
        recent = np.unique(self._recent[-REPEAT_LAST_N:])
        some = logits[recent]
        penalised: Floats = logits.copy()
        penalised[recent] = np.where(some > 0.0, some / penalty, some * penalty)
        return penalised

    def _draw(self, ids: _Ids, left: Floats, place: int, drawn: Drawn | None) -> int:
        if len(ids) == 1:
            return int(ids[0])
        if drawn is not None:
            (drafted, its_shares), shares = drawn, _softmax(left)
            if self.random.random() * its_shares[drafted] < shares[ids == drafted].sum():
                return drafted
            # The rest: what the draft proposes less often than the target draws it.
            for id, share in its_shares.items():
                shares[ids == id] -= share
            with np.errstate(divide="ignore"):
                left = np.log(shares.clip(min=0.0))
        return int(ids[(left + gumbel(self._seed, place, ids)).argmax()])


def _softmax(logits: Floats) -> npt.NDArray[np.float64]:
    odds = np.exp(logits.astype(np.float64) - logits.max())
    shares: npt.NDArray[np.float64] = odds / odds.sum()
    return shares


def _check_number(largest: np.floating[Any]) -> None:
    """The largest logit is not a number if any of them is not one. Raises DecodeError."""
    if not np.isfinite(largest):
        raise DecodeError(
            "the model's logits are not numbers, so no token can be chosen: its file is damaged, "
            "or a kernel of llama.cpp or of the GPU's driver computes wrongly. Download the file "
            "again, or load it without the GPU (engine.n_gpu_layers = 0)"
        )


def likeliest(logits: Floats, count: int) -> _Ids | None:
    """The tokens of the `count` largest logits, the largest first; None if there are too few
    logits for this method, or some are not numbers.

    The count-th largest of the groups' maxima is a bound: at least `count` logits reach it, and few
    more, which are then sorted.
    """
    n_groups = len(logits) // _GROUP
    if n_groups < count:
        return None
    # Group i has the logits i, i + n_groups, and so on: numpy finds those maxima fastest.
    maxima = logits[: n_groups * _GROUP].reshape(_GROUP, n_groups).max(axis=0)
    rest = logits[n_groups * _GROUP :].max(initial=-np.inf)
    if not np.isfinite(np.maximum(maxima.max(), rest)):
        return None
    listed = np.flatnonzero(logits >= np.partition(maxima, -count)[-count])
    return listed[np.argsort(-logits[listed], kind="stable")[:count]]

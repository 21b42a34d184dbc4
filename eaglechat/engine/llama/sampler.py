"""Draws the target's tokens from its logits.

A place has a number from 0 to 1, which depends on the seed and the place alone. The tokens share
out this range in the order of their ids, so the target draws the same token whatever was drafted.

If a draft has drawn its token, that token is accepted or replaced, so that the result has the
target's distribution. More tokens are accepted in this way than the target would draw itself.
Source: speculative sampling (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
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

_Ids = npt.NDArray[np.intp]
Drawn = tuple[int, Mapping[int, float]]
"""A token that a draft has drawn, and the probabilities that it was drawn with, by token."""


def number_of(seed: int, place: int) -> float:
    """From 0 to below 1, uniform, and independent wherever seed or place differ."""
    digest = blake2b(b"%d %d" % (seed, place), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


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
        """The tokens that penalty and filters leave, in the order of their ids, and their logits
        over the temperature. Raises DecodeError."""
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
        shares = _softmax(logits[ids])
        # All that are less likely than the second bound have less than 1 - top_p together.
        bar = max(sampling.min_p * shares.max(), (1.0 - sampling.top_p) / len(shares))
        likely = np.flatnonzero(shares >= bar)
        if sampling.top_p < 1.0:
            likely = likely[np.argsort(-shares[likely], kind="stable")]
            likely = likely[: 1 + int(shares[likely].cumsum().searchsorted(sampling.top_p))]
        ids = np.sort(ids[likely])
        return ids, logits[ids] / sampling.temperature

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
        shares = _softmax(left)
        if drawn is not None:
            drafted, its_shares = drawn
            if self.random.random() * its_shares[drafted] < shares[ids == drafted].sum():
                return drafted
            # The rest: what the draft proposes less often than the target draws it.
            for id, share in its_shares.items():
                shares[ids == id] -= share
            shares = shares.clip(min=0.0)
        ends = shares.cumsum()
        return int(ids[ends[:-1].searchsorted(number_of(self._seed, place) * ends[-1], "right")])


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

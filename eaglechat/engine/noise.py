"""The noise with which tokens are drawn above temperature 0.

Whoever adds Gumbel noise to logits and takes the largest draws from their softmax (the Gumbel-max
trick). The noise of a token depends on the seed, on the place in the text and on the token alone.
So the target draws the same token whatever was drafted, and a draft that adds the same noise to its
own logits draws it too, wherever the two hold about the same tokens likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# SplitMix64 (Steele, Lea and Flood, 2014): its n-th number follows from its beginning and n.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = 31


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


class Noise(NamedTuple):
    """What a target adds to its logits from a place on."""

    seed: int
    place: int
    """That of the token behind the last one, counted from the beginning of the text."""
    temperature: float

    def behind(self, n: int, ids: Sequence[int]) -> npt.NDArray[np.float64]:
        """The noise [n] of the tokens `ids`, `n` tokens behind the next one, in units of logits."""
        return self.temperature * gumbel(self.seed, self.place + n, ids)

"""Greedy replies that are the same but for rounding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eaglechat.engine.llama.objects import Batch, Context, Model
from tests.engine.rig import N_THREADS, decode

TIE = 0.05
"""Logits closer than this count as equal. Batches of another width, and another CPU, add in another
order, which moves the built-in target's logits (Q4_1, standard deviation 4) by at most a few
hundredths and a tiny model's by thousandths. Of the tokens of its replies 2% are chosen by less, so
a loop that goes wrong is all but sure to fork where there is no tie."""


def first_fork(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first index at which two token sequences differ, or None."""
    pairs = zip(one, other, strict=False)
    differing = (index for index, (a, b) in enumerate(pairs) if a != b)
    shorter = min(len(one), len(other))
    return next(differing, None if len(one) == len(other) else shorter)


def same_unless_tie(
    model: Model, prompt: Sequence[int], one: Sequence[int], other: Sequence[int]
) -> None:
    """Fail unless both replies are equal, or part between two tokens of nearly equal logits.

    The logits are those of plain decoding: prompt and common beginning, then one token.
    """
    fork = first_fork(one, other)
    if fork is None:
        return
    assert fork < min(len(one), len(other)), "one reply ends where the other goes on"
    tokens = [*prompt, *one[:fork]]
    sizes = {"n_ctx": len(tokens) + 8, "n_batch": 512, "n_threads": N_THREADS}
    with Context(model, **sizes) as context, Batch(context) as batch:
        decode(context, batch, tokens[:-1], 0, output=False)
        decode(context, batch, tokens[-1:], len(tokens) - 1)
        logits = np.array(context.logits(0))
    pair = logits[[one[fork], other[fork]]]
    assert abs(pair[0] - pair[1]) < TIE, f"fork at {fork}: logits {pair[0]:.4f}, {pair[1]:.4f}"
    assert logits.max() - pair.min() < TIE, f"fork at {fork}: a third token is likelier"

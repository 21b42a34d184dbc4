"""A bigram that weights can be written for: a cycle through all regular tokens.

The embedding of a token is a one of its own and a one that all tokens share. A layer whose output
is zero leaves it as it is, so the output matrix alone says what follows, and what a drafter
proposes is written into its matrices.
"""

from __future__ import annotations

from collections.abc import Collection
from string import ascii_letters, digits

import numpy as np

from tests import tiny

REGULAR = [*ascii_letters, *digits, "Ġ"]
TOKENS = [*REGULAR, "<s>", tiny.END, "<mask>"]
"""Not those of `tests/tiny.py`: each is a whole character and none is made of others, so that
tokens in any order are those of their text; and a block drafter needs a mask."""
N = len(REGULAR)
BOS, EOS, MASK = N, N + 1, N + 2
N_EMBD = 96
SHARED = len(TOKENS)
"""The dimension that is one for every token."""
NORMED = float(np.sqrt(N_EMBD / 2))
"""What RMS norm makes of the two ones of an embedding."""

_CYCLE = np.random.default_rng(1).permutation(N)
F = [int(_CYCLE[(place + 1) % N]) for place in np.argsort(_CYCLE)]
"""Of each regular token, the one that a target without `mix` puts after it."""


def wrong_tokens(share: float) -> frozenset[int]:
    """The tokens after which a drafter is wrong, which are this share of the regular ones."""
    return frozenset(np.random.default_rng(2).permutation(N)[: round(share * N)].tolist())


def repaired_tokens(share: float) -> frozenset[int]:
    """Every second one of `wrong_tokens`: DSpark's Markov head and DFlash2's selector are right
    after these."""
    return frozenset(sorted(wrong_tokens(share))[::2])


def accepted(id_last: int, n: int, wrong: Collection[int]) -> int:
    """How many of n tokens drafted after `id_last` are those of a target without `mix`."""
    count = 0
    while count < n and id_last not in wrong:
        id_last, count = F[id_last], count + 1
    return count


def after(token: int, steps: int) -> int:
    """The token so many steps further in the cycle."""
    for _ in range(steps):
        token = F[token]
    return token


def embeddings() -> np.ndarray:
    """The embedding of each token, [tokens, n_embd]."""
    matrix = np.eye(len(TOKENS), N_EMBD)
    matrix[:, SHARED] = 1
    return matrix


def output_head(wrong: Collection[int] = (), *, second: float = 0.0) -> np.ndarray:
    """Output matrix [tokens, n_embd] that answers t with F[t], and with F[F[t]] after the wrong
    ones, where `second` is the weight of F[t]. Control tokens stay at zero."""
    matrix = np.zeros((len(TOKENS), N_EMBD))
    for token in range(N):
        matrix[F[token], token] = 1
    for token in wrong:
        matrix[F[token], token] = second
        matrix[F[F[token]], token] = 1
    return matrix


def forward() -> np.ndarray:
    """A matrix [n_embd, n_embd] that makes the embedding of t that of F[t]."""
    matrix = np.zeros((N_EMBD, N_EMBD))
    matrix[F, np.arange(N)] = 1
    matrix[SHARED, SHARED] = 1
    return matrix

"""Attention of the unrolled draft: earlier positions of the text, and the chain's own steps.

In step j, a chain that began at position P sees the text's keys up to P and a key of each of its
own steps 2..j. The text's part is a causal product; the chain's part is computed row by row,
because a mask over steps times positions would be almost empty. Both parts share one softmax, so
scaled_dot_product_attention cannot compute them. Scores are computed block by block, and again in
the backward pass: memory grows with the length of the text, not with its square.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

_BLOCK_ROWS = 256


def chain_attention(
    q: Any, text: tuple[Any, Any], chain: tuple[Any, Any], bases: Any, lengths: Sequence[int]
) -> Any:
    """softmax over [text keys up to the base, chain keys], times the values.

    q [n, heads, size]; text: keys and values [rows, kv heads, size]; chain: keys and values
    [steps, n, kv heads, size]; bases [n], ascending: the row of the last text key that each query
    sees; lengths: the rows of each sample, whose text begins anew. Returns [n, heads, size].
    """
    starts = [0, *accumulate(lengths)]
    firsts = torch.searchsorted(bases, torch.tensor(starts, device=bases.device)).tolist()
    mixed = [q[:0]]
    for start, begin, end in zip(starts[:-1], firsts[:-1], firsts[1:], strict=True):
        for first in range(begin, end, _BLOCK_ROWS):
            some = slice(first, min(first + _BLOCK_ROWS, end))
            keys = slice(start, int(bases[some][-1]) + 1)
            block = (
                q[some],
                *(part[keys] for part in text),
                *(part[:, some] for part in chain),
                bases[some] - start,
            )
            mixed.append(checkpoint(_block, *block, use_reentrant=False))
    return torch.cat(mixed)


def _block(q: Any, k: Any, v: Any, chain_k: Any, chain_v: Any, last_seen: Any) -> Any:  # noqa: PLR0917
    # Queries of one group share a key: [n, kv heads, group, size].
    queries = q.unflatten(1, (k.shape[1], -1)) * q.shape[2] ** -0.5
    scores = torch.einsum("nhgd,khd->nhgk", queries, k).float()
    hidden = torch.arange(len(k), device=k.device) > last_seen[:, None]
    scores = scores.masked_fill(hidden[:, None, None], float("-inf"))
    own_scores = torch.einsum("nhgd,snhd->nhgs", queries, chain_k).float()
    weights = torch.cat([scores, own_scores], -1).softmax(-1).to(v.dtype)
    of_text, own = weights.split([len(k), len(chain_k)], -1)
    mixed = torch.einsum("nhgk,khd->nhgd", of_text, v)
    return (mixed + torch.einsum("nhgs,snhd->nhgd", own, chain_v)).flatten(1, 2)

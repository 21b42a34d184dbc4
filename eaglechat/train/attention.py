"""Attention of the unrolled draft: earlier positions of the text, and the chain's own steps.

In step j, a chain that began at position P sees the text's keys up to P and a key of each of its
own steps 2..j. The text's part is a causal product. The chain's part is a dot product per step,
computed row by row, because a mask over steps times positions would be almost empty. Both parts
share one softmax. As in FlashAttention (arXiv 2205.14135), scores are computed block by block and
again in the backward pass, so memory grows with the length of the text, not with its square. Left
to autograd and torch.utils.checkpoint, the same blocks took 1.2 to 1.45 times as long (one core, 9
heads of 64, 10 x 400 and 4 x 1024 rows, float32 and bfloat16).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

_BLOCK_ROWS = 128


@dataclass(frozen=True)
class SampleRows:
    """The rows of one sample: queries [first, last) over keys [start, start + length)."""

    first: int
    last: int
    start: int
    length: int


class ChainAttention(torch.autograd.Function):  # type: ignore[misc]
    """softmax over [text keys up to the base, chain keys], times the values.

    q [n, heads, size], k and v [rows, kv heads, size], chain_k and chain_v
    [steps, n, kv heads, size], bases [n]: the row of the last text key that each query sees.
    Returns [n, heads, size].

    Inside, values of queries have the shape [kv heads, n * group, ...]: queries that share a key
    are neighbours, so the scores of a block are one product and need no transposing.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # noqa: PLR0917
        ctx: Any, q, k, v, chain_k, chain_v, bases, sample_rows
    ) -> Any:
        n, heads, size = q.shape
        kv_heads, scale = k.shape[1], size**-0.5
        group = heads // kv_heads
        queries, text_k, text_v = _grouped(q, kv_heads), k.transpose(0, 1), v.transpose(0, 1)
        out = torch.empty(queries.shape, dtype=torch.float32, device=q.device)
        log_sums = torch.empty(queries.shape[:2], dtype=torch.float32, device=q.device)
        chain = _grouped((_chain_scores(q, chain_k) * scale).unsqueeze(-1), kv_heads).squeeze(-1)
        values = _grouped(_spread(chain_v, heads), kv_heads)
        for first, last, keys in _blocks(sample_rows, bases, len(k)):
            some = slice(first * group, last * group)
            scores = _scores(queries[:, some], text_k[:, keys], bases[first:last] - keys.start)
            own = chain[:, :, some]
            peak = scores.amax(-1).float() * scale
            if len(own):
                peak = torch.maximum(peak, own.amax(0))
            weights = torch.add(-peak.unsqueeze(-1), scores, alpha=scale).exp_()
            own_weights = torch.exp(own - peak)
            total = weights.sum(-1) + own_weights.sum(0)
            mixed = torch.bmm(weights.to(v.dtype), text_v[:, keys]).float()
            mixed += (own_weights.unsqueeze(-1) * values[:, :, some]).sum(0)
            out[:, some] = mixed / total.unsqueeze(-1)
            log_sums[:, some] = peak + total.log()
        ctx.save_for_backward(q, k, v, chain_k, chain_v, bases, out, log_sums)
        ctx.sample_rows = sample_rows
        return _ungrouped(out, n).to(q.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        q, k, v, chain_k, chain_v, bases, out, log_sums = ctx.saved_tensors
        n, heads, size = q.shape
        kv_heads, scale = k.shape[1], size**-0.5
        group = heads // kv_heads
        queries, text_k, text_v = _grouped(q, kv_heads), k.transpose(0, 1), v.transpose(0, 1)
        slopes_out = _grouped(grad.float(), kv_heads)
        delta = (slopes_out * out).sum(-1)
        slopes_low = slopes_out.to(q.dtype)
        grad_q = torch.zeros_like(out)
        grad_k = torch.zeros(text_k.shape, dtype=torch.float32, device=k.device)
        grad_v = torch.zeros_like(grad_k)
        for first, last, keys in _blocks(ctx.sample_rows, bases, len(k)):
            some = slice(first * group, last * group)
            scores = _scores(queries[:, some], text_k[:, keys], bases[first:last] - keys.start)
            weights = torch.add(-log_sums[:, some, None], scores, alpha=scale).exp_()
            slope = torch.bmm(slopes_low[:, some], text_v[:, keys].transpose(1, 2))
            slope = (slope - delta[:, some, None]).mul_(weights).to(q.dtype)
            grad_q[:, some] = torch.bmm(slope, text_k[:, keys])
            grad_k[:, keys] += torch.bmm(slope.transpose(1, 2), queries[:, some])
            grad_v[:, keys] += torch.bmm(weights.to(q.dtype).transpose(1, 2), slopes_low[:, some])
        grad = grad.float()
        own = torch.exp(_chain_scores(q, chain_k) * scale - _ungrouped(log_sums, n))
        own_slope = own * (_chain_scores(grad, chain_v) - _ungrouped(delta, n)) * scale
        grad_q = _ungrouped(grad_q, n) * scale
        grad_q += (own_slope.unsqueeze(-1) * _spread(chain_k, heads)).sum(0)
        grad_chain_k = _fold(own_slope.unsqueeze(-1) * q.float(), kv_heads)
        grad_chain_v = _fold(own.unsqueeze(-1) * grad, kv_heads)
        text_slopes = (grad_k.transpose(0, 1) * scale, grad_v.transpose(0, 1))
        grads = (grad_q, *text_slopes, grad_chain_k, grad_chain_v)
        return (*(one.to(q.dtype) for one in grads), None, None)


def _blocks(sample_rows: Any, bases: Any, n_rows: int) -> Any:
    """Blocks of queries, each with the rows of the keys that any of its queries sees.

    The number of rows is rounded up, because a CPU's library compiles a product for each size.
    """
    for sample in sample_rows:
        for first in range(sample.first, sample.last, _BLOCK_ROWS):
            last = min(first + _BLOCK_ROWS, sample.last)
            # Bases ascend, so the last query of a block sees the most.
            seen = int(bases[last - 1]) + 1 - sample.start
            whole = -(-seen // _BLOCK_ROWS) * _BLOCK_ROWS
            yield first, last, slice(sample.start, min(sample.start + whole, n_rows))


def _scores(queries: Any, keys: Any, seen: Any) -> Any:
    """[kv heads, n * group, keys], unscaled; -inf for keys after the last one in `seen` [n]."""
    kv_heads, rows, _ = queries.shape
    scores = torch.bmm(queries, keys.transpose(1, 2))
    hidden = torch.arange(keys.shape[1], device=keys.device) > seen.unsqueeze(-1)
    by_query = scores.view(kv_heads, len(seen), rows // len(seen), -1)
    by_query.masked_fill_(hidden[:, None, :], float("-inf"))
    return scores


def _grouped(rows: Any, kv_heads: int) -> Any:
    """[..., n, heads, size] -> [..., kv heads, n * group, size]."""
    return rows.unflatten(-2, (kv_heads, -1)).transpose(-4, -3).flatten(-3, -2)


def _ungrouped(rows: Any, n: int) -> Any:
    """[kv heads, n * group, ...] -> [n, heads, ...]."""
    by_query = rows.unflatten(1, (n, rows.shape[1] // n)).transpose(0, 1)
    return by_query.flatten(1, 2)


def _chain_scores(q: Any, chain_k: Any) -> Any:
    """The products [steps, n, heads] of q [n, heads, size] and the chain's own keys."""
    return (_spread(chain_k, q.shape[1]) * q.float()).sum(-1)


def _spread(chain: Any, heads: int) -> Any:
    """[steps, n, kv heads, size] -> [steps, n, heads, size]: each query head gets a copy."""
    return chain.float().repeat_interleave(heads // chain.shape[2], dim=2)


def _fold(grads: Any, kv_heads: int) -> Any:
    """[steps, n, kv heads, size]: the sum over the query heads of each group."""
    steps, n, heads, size = grads.shape
    return grads.view(steps, n, kv_heads, heads // kv_heads, size).sum(3)

"""Attention of the unrolled draft: earlier positions of the text, and the chain's own steps.

In step j a chain that began at position P sees the text's keys up to P, and one key for each of
its own steps 2..j. The text's part is a causal product; the chain's part is one dot product a
step, computed row by row: a mask over steps times positions would be mostly empty. Both share one
softmax. Scores are computed block by block and again in the backward pass, so memory grows with
the text's length, not with its square (as in FlashAttention, arXiv 2205.14135).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

_BLOCK_ROWS = 256


@dataclass(frozen=True)
class Stretch:
    """The rows of one sample: queries [first, last) over keys [start, start + length)."""

    first: int
    last: int
    start: int
    length: int


class ChainAttention(torch.autograd.Function):  # type: ignore[misc]
    """softmax over [text keys up to the base, chain keys], times the values.

    q [n, heads, size], k and v [rows, kv heads, size], chain_k and chain_v
    [steps, n, kv heads, size], bases [n]: the last key of the text that each query sees, counted
    as a row. Returns [n, heads, size].
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # noqa: PLR0917
        ctx: Any, q, k, v, chain_k, chain_v, bases, stretches
    ) -> Any:
        n, heads, size = q.shape
        scale = size**-0.5
        out = torch.empty(n, heads, size, dtype=torch.float32, device=q.device)
        log_sums = torch.empty(n, heads, dtype=torch.float32, device=q.device)
        chain = _chain_scores(q, chain_k) * scale
        for first, last, keys in _blocks(stretches, bases):
            scores = _scores(q[first:last], k[keys], bases[first:last] - keys.start, scale)
            own = chain[:, first:last]
            peak = scores.amax(-1)
            if len(own):
                peak = torch.maximum(peak, own.amax(0))
            weights = torch.exp(scores - peak.unsqueeze(-1))
            own_weights = torch.exp(own - peak)
            total = weights.sum(-1) + own_weights.sum(0)
            mixed = _mix(weights, v[keys])
            mixed += (own_weights.unsqueeze(-1) * _spread(chain_v[:, first:last], heads)).sum(0)
            out[first:last] = mixed / total.unsqueeze(-1)
            log_sums[first:last] = peak + total.log()
        ctx.save_for_backward(q, k, v, chain_k, chain_v, bases, out, log_sums)
        ctx.stretches = stretches
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        q, k, v, chain_k, chain_v, bases, out, log_sums = ctx.saved_tensors
        _, heads, size = q.shape
        kv_heads, scale = k.shape[1], size**-0.5
        grad = grad.float()
        delta = (grad * out).sum(-1)
        grad_low = grad.to(q.dtype)
        grad_q = torch.zeros_like(out)
        grad_k = torch.zeros(k.shape, dtype=torch.float32, device=k.device)
        grad_v = torch.zeros_like(grad_k)
        for first, last, keys in _blocks(ctx.stretches, bases):
            some = slice(first, last)
            scores = _scores(q[some], k[keys], bases[some] - keys.start, scale)
            weights = torch.exp(scores - log_sums[some].unsqueeze(-1))
            slope = _scores(grad_low[some], v[keys], None, 1.0)
            slope = weights * (slope - delta[some].unsqueeze(-1)) * scale
            grad_v[keys] += _gather(weights, grad_low[some], kv_heads)
            grad_k[keys] += _gather(slope, q[some], kv_heads)
            grad_q[some] = _mix(slope, k[keys])
        own = torch.exp(_chain_scores(q, chain_k) * scale - log_sums)
        own_slope = own * (_chain_scores(grad, chain_v) - delta) * scale
        grad_q += (own_slope.unsqueeze(-1) * _spread(chain_k, heads)).sum(0)
        grad_chain_k = _fold(own_slope.unsqueeze(-1) * q.float(), kv_heads)
        grad_chain_v = _fold(own.unsqueeze(-1) * grad, kv_heads)
        dtype = q.dtype
        grads = (grad_q, grad_k, grad_v, grad_chain_k, grad_chain_v)
        return (*(one.to(dtype) for one in grads), None, None)


def _blocks(stretches: Any, bases: Any) -> Any:
    """Blocks of queries with the rows of the keys that any of them sees."""
    for stretch in stretches:
        for first in range(stretch.first, stretch.last, _BLOCK_ROWS):
            last = min(first + _BLOCK_ROWS, stretch.last)
            # Bases ascend, so the last query of a block sees the most.
            yield first, last, slice(stretch.start, int(bases[last - 1]) + 1)


def _scores(q: Any, k: Any, seen: Any, scale: float) -> Any:
    """[n, heads, keys] of q [n, heads, size] and k [keys, kv heads, size]; -inf beyond `seen`."""
    n, heads, size = q.shape
    keys, kv_heads = k.shape[:2]
    grouped = q.view(n, kv_heads, heads // kv_heads, size).transpose(0, 1)
    products = torch.bmm(grouped.reshape(kv_heads, -1, size), k.permute(1, 2, 0))
    scores = products.view(kv_heads, n, -1, keys).transpose(0, 1).float()
    if scale != 1.0:
        scores = scores * scale
    if seen is not None:
        hidden = torch.arange(keys, device=q.device) > seen.unsqueeze(-1)
        scores = scores.masked_fill(hidden[:, None, None, :], float("-inf"))
    return scores.reshape(n, heads, keys)


def _mix(weights: Any, v: Any) -> Any:
    """[n, heads, size]: v [keys, kv heads, size] under weights [n, heads, keys]."""
    n, heads, keys = weights.shape
    kv_heads, size = v.shape[1:]
    grouped = weights.to(v.dtype).view(n, kv_heads, heads // kv_heads, keys).transpose(0, 1)
    mixed = torch.bmm(grouped.reshape(kv_heads, -1, keys), v.transpose(0, 1))
    return mixed.view(kv_heads, n, -1, size).transpose(0, 1).reshape(n, heads, size).float()


def _gather(weights: Any, rows: Any, kv_heads: int) -> Any:
    """[keys, kv heads, size]: rows [n, heads, size] gathered by weights [n, heads, keys]."""
    n, heads, keys = weights.shape
    size = rows.shape[-1]
    left = weights.to(rows.dtype).view(n, kv_heads, -1, keys).transpose(0, 1)
    right = rows.view(n, kv_heads, heads // kv_heads, size).transpose(0, 1)
    gathered = torch.bmm(
        left.reshape(kv_heads, -1, keys).transpose(1, 2), right.reshape(kv_heads, -1, size)
    )
    return gathered.transpose(0, 1).float()


def _chain_scores(q: Any, chain_k: Any) -> Any:
    """[steps, n, heads] of q [n, heads, size] with the chain's own keys."""
    return (_spread(chain_k, q.shape[1]) * q.float()).sum(-1)


def _spread(chain: Any, heads: int) -> Any:
    """[steps, n, heads, size] of what all query heads of a group share."""
    return chain.float().repeat_interleave(heads // chain.shape[2], dim=2)


def _fold(grads: Any, kv_heads: int) -> Any:
    """[steps, n, kv heads, size]: the sum over the query heads of each group."""
    steps, n, heads, size = grads.shape
    return grads.view(steps, n, kv_heads, heads // kv_heads, size).sum(3)

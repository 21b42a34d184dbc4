"""The draft's output head and its loss, computed together.

The logits of some thousand rows would be the largest tensor in training. Here they exist for one
block of rows at a time, and become their own gradient at once, which for a cross entropy needs
nothing from later steps: three products per block, where autograd with recomputed logits would need
four. Products work on blocks; everything else works on pieces of a block that fit into the CPU's
caches.
"""

from __future__ import annotations

from typing import Any

import torch

_BLOCK_ROWS = 2048
_PIECE_ROWS = 64
"""On the CPU; a GPU takes a whole block."""
_TEACHER_ROWS = 256


class HeadLoss(torch.autograd.Function):  # type: ignore[misc]
    """Weighted sum of cross entropies between the teacher's distribution and the draft's.

    states [n, n_embd], head [vocabulary, n_embd], teacher [rows, vocabulary], teacher_rows [n],
    weights [n], labels [n]: the text's own next token in the draft's vocabulary. Returns the loss,
    and [n] whether the draft's likeliest token is the label.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # noqa: PLR0917
        ctx: Any, states, head, teacher, teacher_rows, weights, labels
    ) -> Any:
        grad_states = torch.empty_like(states)
        grad_head = torch.zeros((), dtype=head.dtype, device=head.device)
        hits = torch.empty(len(states), dtype=torch.bool, device=states.device)
        loss = torch.zeros((), dtype=torch.float32, device=states.device)
        room = torch.empty(
            min(len(states), _BLOCK_ROWS), len(head), dtype=head.dtype, device=head.device
        )
        piece_rows = _PIECE_ROWS if states.device.type == "cpu" else _BLOCK_ROWS
        for first in range(0, len(states), _BLOCK_ROWS):
            some = slice(first, first + _BLOCK_ROWS)
            block = room[: len(states[some])]
            torch.mm(states[some], head.T, out=block)
            pieces = (
                part.split(piece_rows)
                for part in (block, teacher_rows[some], weights[some], labels[some], hits[some])
            )
            for low, taught, weight, label, hit in zip(*pieces, strict=True):
                loss += _loss_and_slope(low, teacher[taught], weight, label, hit)
            torch.mm(block, head, out=grad_states[some])
            product = block.T @ states[some]
            grad_head = product if first == 0 else grad_head + product
        ctx.save_for_backward(grad_states, grad_head)
        ctx.mark_non_differentiable(hits)
        return loss, hits

    @staticmethod
    def backward(ctx: Any, grad: Any, _grad_hits: Any) -> Any:
        grad_states, grad_head = ctx.saved_tensors
        return grad_states * grad, grad_head * grad, None, None, None, None


def _loss_and_slope(low: Any, wanted: Any, weights: Any, labels: Any, hits: Any) -> Any:
    """The loss of some rows. Replaces their logits `low` by its gradient, and fills `hits`."""
    logits = low.float()
    peak = logits.amax(-1, keepdim=True)
    torch.eq(logits.gather(1, labels[:, None]), peak, out=hits[:, None])
    logits -= peak
    low.copy_(logits)
    agreement = torch.linalg.vecdot(wanted, low).float()
    logits.exp_()
    total = logits.sum(-1, keepdim=True)
    loss = (weights * (total.squeeze(1).log() - agreement)).sum()
    logits *= weights[:, None] / total
    torch.addcmul(logits, wanted, weights[:, None], value=-1.0, out=logits)
    low.copy_(logits)
    return loss


def teacher_distribution(final_states: Any, head: Any, soft_cap: float | None) -> Any:
    """The target's own distribution over the draft's vocabulary [rows, vocabulary].

    `final_states` [rows, n_embd] are the target's states after its output norm, `head`
    [vocabulary, n_embd] the rows of its output head for the draft's vocabulary.
    """
    parts = []
    for first in range(0, len(final_states), _TEACHER_ROWS):
        logits = (final_states[first : first + _TEACHER_ROWS] @ head.T).float()
        if soft_cap is not None:
            logits = soft_cap * torch.tanh(logits / soft_cap)
        parts.append(torch.softmax(logits, -1).to(head.dtype))
    return torch.cat(parts)

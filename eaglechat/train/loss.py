"""The draft's output head and its loss in one piece.

Logits of some thousand rows over the draft's vocabulary are the largest thing in training; here
they exist for some hundred rows at a time, and their gradient is taken while they are at hand (the
gradient of a cross entropy needs nothing from later).
"""

from __future__ import annotations

from typing import Any

import torch

_CHUNK_ROWS = 512


class HeadLoss(torch.autograd.Function):  # type: ignore[misc]
    """Weighted sum of cross entropies between the teacher's distribution and the draft's.

    states [n, n_embd], head [vocabulary, n_embd], teacher [rows, vocabulary], teacher_rows [n],
    weights [n], labels [n]: the text's own next token in the draft's vocabulary. Returns the loss,
    and for each row whether the draft's likeliest token is the label.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # noqa: PLR0917
        ctx: Any, states, head, teacher, teacher_rows, weights, labels
    ) -> Any:
        grad_states = torch.empty_like(states)
        grad_head = torch.zeros(head.shape, dtype=torch.float32, device=head.device)
        hits = torch.empty(len(states), dtype=torch.bool, device=states.device)
        loss = torch.zeros((), dtype=torch.float32, device=states.device)
        room = _Room(min(len(states), _CHUNK_ROWS), head)
        for first in range(0, len(states), _CHUNK_ROWS):
            some = slice(first, first + _CHUNK_ROWS)
            low, logits, wanted = room.rows(len(states[some]))
            torch.mm(states[some], head.T, out=low)
            logits.copy_(low)
            torch.index_select(teacher, 0, teacher_rows[some], out=wanted)
            peak = logits.amax(-1, keepdim=True)
            hits[some] = logits.gather(1, labels[some, None]).eq(peak).squeeze(1)
            logits -= peak
            low.copy_(logits)
            agreement = torch.linalg.vecdot(wanted, low).float()
            logits.exp_()
            total = logits.sum(-1, keepdim=True)
            loss += (weights[some] * (total.squeeze(1).log() - agreement)).sum()
            logits *= weights[some, None] / total
            low.copy_(logits)
            wanted *= weights[some, None].to(wanted.dtype)
            low -= wanted
            grad_states[some] = low @ head
            grad_head += low.T @ states[some]
        ctx.save_for_backward(grad_states, grad_head)
        ctx.head_dtype = head.dtype
        ctx.mark_non_differentiable(hits)
        return loss, hits

    @staticmethod
    def backward(ctx: Any, grad: Any, _grad_hits: Any) -> Any:
        grad_states, grad_head = ctx.saved_tensors
        return grad_states * grad, (grad_head * grad).to(ctx.head_dtype), None, None, None, None


class _Room:
    """Memory for a chunk's logits, used again and again: fresh pages would cost more than the
    arithmetic."""

    def __init__(self, n_rows: int, head: Any) -> None:
        extent = (n_rows, len(head))
        self._low = torch.empty(extent, dtype=head.dtype, device=head.device)
        self._logits = torch.empty(extent, dtype=torch.float32, device=head.device)
        self._wanted = torch.empty(extent, dtype=head.dtype, device=head.device)

    def rows(self, n: int) -> tuple[Any, Any, Any]:
        return self._low[:n], self._logits[:n], self._wanted[:n]


def teacher_distribution(final_states: Any, head: Any, soft_cap: float | None) -> Any:
    """[rows, vocabulary]: the target's own distribution over the draft's vocabulary.

    `final_states` [rows, n_embd] is what the target hands to its output head, `head`
    [vocabulary, n_embd] that head's rows of the draft's vocabulary.
    """
    parts = []
    for first in range(0, len(final_states), _CHUNK_ROWS):
        logits = (final_states[first : first + _CHUNK_ROWS] @ head.T).float()
        if soft_cap is not None:
            logits = soft_cap * torch.tanh(logits / soft_cap)
        parts.append(torch.softmax(logits, -1).to(head.dtype))
    return torch.cat(parts)

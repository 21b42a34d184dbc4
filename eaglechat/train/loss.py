"""The draft's output head and its loss, computed together.

The logits of some thousand rows would be the largest tensor in training: here they exist for one
block of rows at a time, and are computed again in the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

_BLOCK_ROWS = 512


def head_loss(
    states: Any, head: Any, teacher: tuple[Any, Any], weights: Any, labels: Any
) -> tuple[Any, Any]:
    """Weighted sum of cross entropies between the teacher's distribution and the draft's.

    states [n, n_embd], head [vocabulary, n_embd], weights [n], labels [n]: the text's own next
    token in the draft's vocabulary; teacher: distributions [rows, vocabulary], and the row [n] of
    each state. Returns the loss, and [n] whether the draft's likeliest token is the label.
    """
    distributions, rows_of = teacher
    loss, hits = torch.zeros((), device=states.device), []
    for first in range(0, len(states), _BLOCK_ROWS):
        some = slice(first, first + _BLOCK_ROWS)
        taught = distributions, rows_of[some]
        block = (states[some], head, taught, weights[some], labels[some])
        part, hit = checkpoint(_block, *block, use_reentrant=False)
        loss = loss + part
        hits.append(hit)
    return loss, torch.cat(hits)


def _block(
    states: Any, head: Any, taught: tuple[Any, Any], weights: Any, labels: Any
) -> tuple[Any, Any]:
    distributions, rows = taught
    logits = (states @ head.T).float()
    wanted = distributions[rows].float()
    loss = (weights * cross_entropy(logits, wanted, reduction="none")).sum()
    hits = logits.gather(1, labels[:, None]).squeeze(1) == logits.amax(-1)
    return loss, hits


def teacher_distribution(final_states: Any, head: Any, soft_cap: float | None) -> Any:
    """The target's own distribution over the draft's vocabulary [rows, vocabulary].

    `final_states` [rows, n_embd] are the target's states after its output norm, `head`
    [vocabulary, n_embd] the rows of its output head for the draft's vocabulary.
    """
    parts = []
    for some in final_states.split(_BLOCK_ROWS):
        logits = (some @ head.T).float()
        if soft_cap is not None:
            logits = soft_cap * torch.tanh(logits / soft_cap)
        parts.append(torch.softmax(logits, -1).to(head.dtype))
    return torch.cat(parts)

"""What training predicts the engine will accept: held-out texts, replayed round by round.

A draft of the text's next tokens is accepted up to the first that differs, the next round begins
after it: the same rounds, positions and counts as in the engine, from the training code's own
forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from eaglechat.train.data.corpus import Sample
from eaglechat.train.model.lesson import Lesson
from eaglechat.train.model.network import HEAD, Unrolled, Weights
from eaglechat.train.run.batches import Features, TrainingBatch, assemble, on_device

_CHUNK_ROWS = 512


@dataclass(frozen=True)
class Foreseen:
    """Counts over the rounds; the definitions are those of `engine.stats`."""

    rounds: int
    tested_at: tuple[int, ...]
    accepted_at: tuple[int, ...]

    @property
    def mean_accepted_length(self) -> float:
        return 1.0 + sum(self.accepted_at) / max(self.rounds, 1)

    @property
    def per_position(self) -> tuple[float, ...]:
        pairs = zip(self.accepted_at, self.tested_at, strict=True)
        return tuple(accepted / tested for accepted, tested in pairs if tested)


def foresee(
    lesson: Lesson,
    weights: Weights,
    samples: Sequence[Sample],
    features: Features,
    *,
    n_draft_max: int,
    max_tokens: int,
    stopped: Callable[[], bool] = lambda: False,
) -> Foreseen:
    """Replay the samples with drafts of `n_draft_max` tokens; fewer samples if stopped.

    Of each reply the first `max_tokens`: the longer a greedy reply, the more it repeats itself.
    """
    tested, accepted = np.zeros(n_draft_max, int), np.zeros(n_draft_max, int)
    rounds = 0
    for sample in samples:
        if stopped():
            break
        read = assemble([sample], features, lesson.draft_ids, n_draft_max)
        batch = on_device(read, lesson.device)
        with torch.no_grad():
            right = _right_in_a_row(lesson, weights, batch, n_draft_max)
        for start, end in sample.spans:
            base, last = max(start - 2, 0), min(end, start + max_tokens) - 2
            while base < last:
                n_accepted = min(int(right[base]), last - base)
                n_tested = min(n_accepted + 1, n_draft_max, last - base)
                tested[:n_tested] += 1
                accepted[:n_accepted] += 1
                rounds += 1
                base += n_accepted + 1
    return Foreseen(rounds, tuple(tested.tolist()), tuple(accepted.tolist()))


def _right_in_a_row(
    lesson: Lesson, weights: Weights, batch: TrainingBatch, n_draft_max: int
) -> npt.NDArray[np.int64]:
    """[rows]: how many tokens of a draft from each row agree with the text, up to the first
    that does not."""
    head = weights[HEAD].to(lesson.dtype)
    unrolled = Unrolled(weights, lesson, batch.chains)
    count = torch.zeros(len(batch.limits), dtype=torch.int64, device=lesson.device)
    step = unrolled.first()
    for number in range(1, n_draft_max + 1):
        labels = batch.labels[step.bases + number + 1]
        hits = _likeliest(step.normed, head) == labels
        count[step.bases[hits]] = number
        going_on = torch.nonzero(hits & (batch.limits[step.bases] > number)).squeeze(1)
        if number == n_draft_max or not len(going_on):
            break
        step = unrolled.following(number + 1, step, going_on)
    return np.asarray(count.cpu().numpy())


def _likeliest(states: Any, head: Any) -> Any:
    """The likeliest token of each row; in float32, as lower precision makes ties."""
    exact = head.float()
    return torch.cat([(some.float() @ exact.T).argmax(-1) for some in states.split(_CHUNK_ROWS)])

"""Batches of samples as tensors: where chains begin, how far they may go, and their labels."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from eaglechat.train.corpus import Sample
from eaglechat.train.features import FeatureStore
from eaglechat.train.network import Batch, TrainingSetup


@dataclass(frozen=True)
class Place:
    """A place in the data: passes that are done, and samples that are done in this pass."""

    epoch: int = 0
    sample: int = 0


def batches(
    samples: Sequence[Sample], place: Place, tokens: int, seed: int
) -> Iterator[tuple[list[Sample], Place]]:
    """Endless batches of about so many tokens, each with the place after it.

    Seed and pass decide the order of the samples.
    """
    epoch, first = place.epoch, place.sample
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(len(samples))
        while first < len(order):
            batch: list[Sample] = []
            while first < len(order) and sum(len(s.tokens) for s in batch) < tokens:
                batch.append(samples[order[first]])
                first += 1
            yield batch, Place(epoch, first)
        epoch, first = epoch + 1, 0


def prepared(
    samples: Sequence[Sample], place: Place, features: FeatureStore, setup: TrainingSetup
) -> Generator[tuple[Batch, Place]]:
    """Endless batches, each with the place after it. A thread reads the next one meanwhile.

    That thread does not use the device: two threads on a Mac's GPU crash the process (torch issue
    197805).
    """
    recipe = setup.recipe
    coming = batches(samples, place, recipe.batch_tokens, recipe.seed)

    def read() -> tuple[Batch, Place]:
        chosen, place = next(coming)
        return assemble(chosen, features, setup.draft_ids, recipe.steps), place

    with ThreadPoolExecutor(1) as reader:
        waiting = reader.submit(read)
        while True:
            batch, after = waiting.result()
            waiting = reader.submit(read)
            yield on_device(batch, setup.device), after


def assemble(
    samples: Sequence[Sample],
    features: FeatureStore,
    draft_ids: npt.NDArray[np.int64],
    steps: int,
) -> Batch:
    """Read a batch's features and concatenate the samples, on the CPU.

    `draft_ids` [n_vocab] is the index of each token in the draft's vocabulary, or -1.
    """
    rows = np.concatenate([features.rows(sample) for sample in samples])
    n_embd = rows.shape[1] // 4
    tokens = np.concatenate([*(s.tokens for s in samples), np.zeros(steps + 1, np.int32)])
    max_steps = np.concatenate([_max_steps(sample) for sample in samples])
    return Batch(
        features=torch.from_numpy(rows[:, : 3 * n_embd]),
        tokens=torch.from_numpy(tokens.astype(np.int64)),
        positions=torch.from_numpy(np.concatenate([np.arange(len(s.tokens)) for s in samples])),
        lengths=tuple(len(sample.tokens) for sample in samples),
        bases=torch.from_numpy(np.flatnonzero(max_steps)),
        max_steps=torch.from_numpy(max_steps),
        labels=torch.from_numpy(draft_ids[tokens]),
        final_states=torch.from_numpy(rows[:, 3 * n_embd :]),
    )


def on_device(batch: Batch, device: Any) -> Batch:
    """The batch on another device."""
    tensors = {n: one for n, one in vars(batch).items() if isinstance(one, torch.Tensor)}
    return replace(batch, **{name: tensor.to(device) for name, tensor in tensors.items()})


def _max_steps(sample: Sample) -> npt.NDArray[np.int64]:
    """For each position, how many steps a chain from it stays within a span that teaches."""
    max_steps = np.zeros(len(sample.tokens), dtype=np.int64)
    for start, end in sample.spans:
        # A chain from P first predicts token P + 2.
        first = max(start - 2, 0)
        bases = np.arange(first, max(end - 2, first))
        max_steps[bases] = end - 2 - bases
    return max_steps

"""Before the first batch: makes a new draft, and its setup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import rms_norm

from eaglechat.gguf.header import GGUFHeader
from eaglechat.train import corpus
from eaglechat.train.corpus import Sample
from eaglechat.train.draft_file import TrainableDraft
from eaglechat.train.features import N_PARTS, FeatureStore
from eaglechat.train.network import (
    FC,
    TrainingSetup,
    Weights,
    new_weights,
    normed_features,
)
from eaglechat.train.settings import DRAFT_VOCABULARY, Recipe
from eaglechat.train.target import HEAD, VocabularyMatrices, shape_of, soft_cap

_SCALE_SAMPLES = 16
_MEDIAN_OF_NORMAL = 0.6745
"""The median of the absolute values of a standard normal distribution."""


@dataclass(frozen=True)
class Scales:
    """The median size of each dimension of a target's states.

    The dimensions differ by orders of magnitude, and some are a hundred times larger at the first
    token. Without scaling, no learning rate would suit all of them.
    """

    features: npt.NDArray[np.float32]
    """[3 * n_embd], of the inputs of three layers."""
    final: npt.NDArray[np.float32]
    """[n_embd], of the state after the output norm."""


def measure_scales(
    training: Sequence[Sample], features: FeatureStore, begun_as: TrainableDraft | None
) -> Scales:
    """Scales from the medians, which a few huge values do not change.

    The features are taken after the norms of the draft that training begins with.
    """
    some = [features.rows(sample) for sample in training[:_SCALE_SAMPLES]]
    rows = np.concatenate(some).astype(np.float32)
    if begun_as is not None:
        weights = {name: torch.from_numpy(values) for name, values in begun_as.weights.items()}
        given = torch.from_numpy(rows[:, : begun_as.shape.n_features])
        given[:] = normed_features(given, weights, begun_as.shape)
    sizes = np.median(np.abs(rows), axis=0) / _MEDIAN_OF_NORMAL
    n_embd = sizes.size // N_PARTS
    # A dimension that is almost always zero must not be scaled up.
    scales: npt.NDArray[np.float32] = np.maximum(sizes, 1e-3 * np.median(sizes)).astype(np.float32)
    return Scales(scales[: 3 * n_embd], scales[3 * n_embd :])


def new_draft(
    target: GGUFHeader,
    matrices: VocabularyMatrices,
    layers: tuple[int, ...],
    training: Sequence[Sample],
    scales: Scales,
    *,
    n_draft_vocab: int | None,
    seed: int,
) -> TrainableDraft:
    """A draft with a layer of the target's dimensions, and the most frequent tokens of the data."""
    shape = shape_of(target)
    size = n_draft_vocab or min(DRAFT_VOCABULARY, target.n_vocab)
    d2t = corpus.most_frequent(training, size, target.n_vocab)
    head, final = torch.from_numpy(matrices.head(d2t)), torch.from_numpy(scales.final)
    weights = {n: weight.numpy() for n, weight in new_weights(shape, head, final, seed).items()}
    weights[FC] /= scales.features
    return TrainableDraft(shape, layers, d2t, weights)


def with_vocabulary(
    draft: TrainableDraft, d2t: npt.NDArray[np.int64], matrices: VocabularyMatrices
) -> TrainableDraft:
    """The draft with another vocabulary, `d2t` (ascending).

    Its head keeps the rows of the tokens that stay. The rows of new tokens are the target's, mapped
    linearly: the map is the least-squares fit from the target's rows of the old tokens to the
    draft's.
    """
    old_head = draft.weights[HEAD]
    to_draft, *_ = np.linalg.lstsq(matrices.head(draft.d2t), old_head, rcond=None)
    head = (matrices.head(d2t) @ to_draft).astype(np.float32)
    _, kept, kept_before = np.intersect1d(d2t, draft.d2t, return_indices=True)
    head[kept] = old_head[kept_before]
    return replace(draft, d2t=d2t, weights={**draft.weights, HEAD: head})


def setup_for(
    draft: TrainableDraft,
    target: GGUFHeader,
    matrices: VocabularyMatrices,
    scales: Scales,
    recipe: Recipe,
    *,
    dtype: Any,
    device: Any,
) -> TrainingSetup:
    """The setup of a run, on the device of the training."""
    draft_ids = np.full(target.n_vocab, -1, dtype=np.int64)
    draft_ids[draft.d2t] = np.arange(len(draft.d2t))
    embeddings = [
        rms_norm(torch.from_numpy(rows), rows.shape[-1:], eps=draft.shape.rms_eps).to(dtype)
        for rows in (draft.own_embeddings or matrices).embeddings()
    ]
    return TrainingSetup(
        shape=draft.shape,
        recipe=recipe,
        feature_scale=torch.from_numpy(scales.features).to(device),
        embeddings=torch.cat(embeddings).to(device),
        target_head=torch.from_numpy(matrices.head(draft.d2t)).to(device, dtype),
        soft_cap=soft_cap(target),
        draft_ids=draft_ids,
        dtype=dtype,
        device=device,
    )


def to_training(draft: TrainableDraft, setup: TrainingSetup) -> dict[str, Any]:
    """A draft's weights for training: `fc` is for features divided by their scale."""
    weights = {name: torch.from_numpy(values) for name, values in draft.weights.items()}
    weights[FC] = weights[FC] * setup.feature_scale.cpu()
    return weights


def from_training(weights: Weights, setup: TrainingSetup) -> dict[str, npt.NDArray[np.float32]]:
    """The reverse of `to_training`."""
    plain = {name: weight.detach().cpu() for name, weight in weights.items()}
    plain[FC] = plain[FC] / setup.feature_scale.cpu()
    return {name: weight.numpy() for name, weight in plain.items()}

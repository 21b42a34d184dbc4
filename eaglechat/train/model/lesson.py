"""What does not change in a run: dimensions, and what comes from the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eaglechat.train.model.target import Shape
from eaglechat.train.settings import Recipe


@dataclass(frozen=True)
class Lesson:
    """What does not change in a run."""

    shape: Shape
    recipe: Recipe
    feature_scale: Any
    """[3 * n_embd]: the usual size of each dimension of the features, which are divided by it."""
    embeddings: Any
    """[n_vocab, n_embd], each row divided by its root mean square."""
    target_head: Any
    """[draft vocabulary, n_embd]: the target's own."""
    soft_cap: float | None
    draft_ids: npt.NDArray[np.int64]
    """[n_vocab]: each token's index in the draft's vocabulary, or -1."""
    dtype: Any
    device: Any

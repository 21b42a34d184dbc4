"""The draft's likeliest tokens, compared with a plain softmax over all logits."""

from __future__ import annotations

import numpy as np
import pytest

from eaglechat.engine.drafters.base import Likeliest, ProcessError

N_VOCAB, N_DRAFT_VOCAB = 5000, 700


def logits_of(spread: float, n_candidates: int = N_DRAFT_VOCAB) -> np.ndarray:
    """Logits of a draft's vocabulary, scattered over the target's."""
    chance = np.random.default_rng(3)
    logits = np.full(N_VOCAB, -np.inf, dtype=np.float32)
    places = chance.choice(N_VOCAB, n_candidates, replace=False)
    logits[places] = chance.normal(0.0, spread, n_candidates)
    return logits


@pytest.mark.parametrize("spread", [0.0, 0.1, 3.0, 50.0])
@pytest.mark.parametrize("n_candidates", [3, 10, N_DRAFT_VOCAB])
def test_the_likeliest_token_and_its_share_of_the_ten_likeliest(
    spread: float, n_candidates: int
) -> None:
    logits = logits_of(spread, n_candidates)
    top = np.sort(logits[np.isfinite(logits)])[-10:].astype(np.float64)
    (first, share), *_ = some = Likeliest().top_k(logits)
    assert logits[first] == logits.max()
    assert share == pytest.approx(1.0 / np.exp(top - top[-1]).sum(), rel=1e-6)
    assert [logits[token] for token, _ in some] == np.sort(logits)[::-1][: len(top)].tolist()
    assert sum(share for _, share in some) == pytest.approx(1.0)


@pytest.mark.parametrize("logit", [-np.inf, np.nan])
def test_logits_without_a_finite_one_are_refused(logit: float) -> None:
    """A broken draft says so instead of drafting nonsense."""
    logits = np.full(N_VOCAB, logit, dtype=np.float32)
    with pytest.raises(ProcessError, match="no finite logits"):
        Likeliest().top_k(logits)

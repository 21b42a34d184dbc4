"""The noise of the draws: Gumbel's distribution, and independent wherever anything differs."""

from __future__ import annotations

import numpy as np
import pytest

from eaglechat.engine.llama.sampler import gumbel

IDS = np.arange(100_000)


def test_it_has_the_standard_gumbel_distribution() -> None:
    noise = np.sort(gumbel(3, 7, IDS))
    assert np.isfinite(noise).all()
    distance = np.abs(np.exp(-np.exp(-noise)) - (np.arange(len(IDS)) + 0.5) / len(IDS)).max()
    # Kolmogorov and Smirnov: a right one exceeds this once in 10,000 seeds.
    assert distance < 2.23 / len(IDS) ** 0.5


@pytest.mark.parametrize(
    ("seed", "place", "step"), [(4, 7, 0), (3, 8, 0), (4, 6, 0), (37, 0, 0), (3, 7, 1)]
)
def test_it_is_independent_in_all_that_it_depends_on(seed: int, place: int, step: int) -> None:
    """Of another seed, another place and other tokens, also where they seem to make up for each
    other."""
    uniform, other = (
        np.exp(-np.exp(-noise)) for noise in (gumbel(3, 7, IDS), gumbel(seed, place, IDS + step))
    )
    assert abs(np.corrcoef(uniform, other)[0, 1]) < 4 / len(IDS) ** 0.5


def test_a_token_s_noise_is_the_same_whoever_is_asked_about_beside_it() -> None:
    few = [5, 17, 99_999]
    assert gumbel(3, 7, few).tolist() == gumbel(3, 7, IDS)[few].tolist()

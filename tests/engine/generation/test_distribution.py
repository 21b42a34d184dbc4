"""Speculative and plain sampling draw from the same distribution, the target's own.

The joint distribution of the first three tokens is computed exactly from the target's logits;
thousands of replies, each with its own seed, are held against it with a G-test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.wire.protocol import Sampling
from tests import tiny
from tests.engine.kind_pairs import KINDS, Files
from tests.engine.rig import N_THREADS, Rig, decode, open_rig

PROMPT = (tiny.BOS, *(tiny.TOKENS.index(letter) for letter in "thecatsat"))
TEMPERATURE = 0.8
SAMPLING = Sampling(temperature=TEMPERATURE, top_k=0, top_p=1.0, min_p=0.0)
N_TOKENS = 3
N_REPLIES = 2500
WORST_Z = 4.0
"""A right sampler exceeds this once in 30,000 sets of seeds, a wrong one by far."""

Outcome = tuple[int, ...]


@pytest.fixture(scope="module")
def exact(tiny_models: tuple[Model, Model]) -> dict[Outcome, float]:
    """The probability of each likely beginning of a reply to PROMPT."""
    return outcomes(tiny_models[0], PROMPT)


def outcomes(model: Model, prompt: Sequence[int]) -> dict[Outcome, float]:
    with (
        Context(model, n_ctx=256, n_batch=64, n_threads=N_THREADS) as context,
        Batch(context) as batch,
    ):
        return dict(_outcomes(context, batch, prompt, (), 1.0))


def _outcomes(
    context: Context, batch: Batch, prompt: Sequence[int], so_far: Outcome, probability: float
) -> Iterator[tuple[Outcome, float]]:
    ended = so_far[-1:] == (tiny.EOS,) or len(so_far) == N_TOKENS
    # What is too rare to be expected even once goes into the pool of the rest.
    if ended or probability * N_REPLIES < 1:
        yield so_far, probability
        return
    tokens = [*prompt, *so_far]
    context.forget(0, 0)
    decode(context, batch, tokens, 0)
    logits = np.array(context.logits(len(tokens) - 1), dtype=np.float64) / TEMPERATURE
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    for token, share in enumerate(shares):
        yield from _outcomes(context, batch, prompt, (*so_far, token), probability * share)


def sample(rig: Rig) -> Counter[Outcome]:
    """Beginnings of replies."""
    counts: Counter[Outcome] = Counter()
    for seed in range(N_REPLIES):
        # One token more than is compared: the last one is never drafted for.
        reply = rig.reply(PROMPT, sampling=SAMPLING, seed=seed, max_tokens=N_TOKENS + 1)
        counts[tuple(reply.tokens[:N_TOKENS])] += 1
    return counts


def g_test(counts: Counter[Outcome], exact: dict[Outcome, float], *, at_least: int = 40) -> float:
    """How far off the counts are, in standard deviations (Wilson and Hilferty's approximation), of
    more than `at_least` outcomes that are likely enough to count."""
    n_replies = counts.total()
    cells = {outcome: p * n_replies for outcome, p in exact.items() if p * n_replies >= 5}
    observed = [counts[outcome] for outcome in cells]
    expected = list(cells.values())
    observed.append(n_replies - sum(observed))
    expected.append(n_replies - sum(expected))
    g = 2 * sum(o * np.log(o / e) for o, e in zip(observed, expected, strict=True) if o)
    freedom = len(cells)
    assert freedom > at_least
    spread = 2 / (9 * freedom)
    return float(((g / freedom) ** (1 / 3) - (1 - spread)) / np.sqrt(spread))


@pytest.mark.slow
def test_replies_with_trees_are_drawn_from_it_too(
    tiny_models: tuple[Model, Model], exact: dict[Outcome, float]
) -> None:
    with open_rig(*tiny_models, shape="tree") as rig:
        assert any(round_.is_tree for round_ in rig.reply(PROMPT, sampling=SAMPLING).rounds)
        assert g_test(sample(rig), exact) < WORST_Z


# Plain decoding and heads sample the same tokens: test_loop_drafters and test_mtp.
def test_replies_are_drawn_from_the_target_s_distribution(
    rig: Rig, exact: dict[Outcome, float]
) -> None:
    assert sum(exact.values()) == pytest.approx(1.0)

    assert g_test(sample(rig), exact) < WORST_Z


def test_replies_of_a_block_drafter_are_drawn_from_it_too(tmp_path: Path) -> None:
    made = replace(KINDS["llama, dflash"], mix=0.15)
    files = Files(made, *made.write(tmp_path, mixed=True))
    prompt = range(5, 10)
    with Model(files.target) as model:
        exact = outcomes(model, prompt)
    counts: Counter[Outcome] = Counter()
    n_accepted = n_drafted = 0
    with files.loaded() as pair:
        for seed in range(1000):
            reply = pair.reply(prompt, sampling=SAMPLING, seed=seed, length=N_TOKENS + 1)
            counts[tuple(reply.tokens[:N_TOKENS])] += 1
            n_accepted += sum(round_.n_accepted for round_ in reply.rounds)
            n_drafted += sum(len(round_.drafted) for round_ in reply.rounds)
    assert 0.1 * n_drafted < n_accepted < 0.8 * n_drafted
    assert sum(exact.values()) == pytest.approx(1.0)
    assert g_test(counts, exact, at_least=20) < WORST_Z

"""Speculative and plain sampling draw from the same distribution, the target's own.

The joint distribution of the first two tokens is computed exactly from the target's logits;
hundreds of replies, each with its own seed, are held against it with a G-test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from eaglechat.engine.drafters.proposal import DRAFT_TEMPERATURE, Guess, Limits
from eaglechat.engine.llama import sampler
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.noise import Noise, gumbel
from eaglechat.wire.protocol import Sampling
from tests import tiny
from tests.engine.rig import N_THREADS, Rig, decode

PROMPT = (tiny.BOS, *(tiny.TOKENS.index(letter) for letter in "thecatsat"))
FREE = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)
CUT = Sampling(temperature=0.8, top_k=12, top_p=0.9, min_p=0.04, repeat_penalty=1.3)
EACH = pytest.mark.parametrize("sampling", [FREE, CUT], ids=["free", "cut"])
N_TOKENS = 2
N_REPLIES = 600
WORST_Z = 4.0
"""A right sampler exceeds this once in 30,000 sets of seeds, a wrong one by far."""

Outcome = tuple[int, ...]


def outcomes(model: Model, prompt: Sequence[int], sampling: Sampling) -> dict[Outcome, float]:
    """The probability of each likely beginning of a reply."""
    with (
        Context(model, n_ctx=256, n_batch=64, n_threads=N_THREADS) as context,
        Batch(context) as batch,
    ):
        return dict(_outcomes(context, batch, prompt, (), 1.0, sampling))


def _outcomes(  # noqa: PLR0917
    context: Context,
    batch: Batch,
    prompt: Sequence[int],
    so_far: Outcome,
    probability: float,
    sampling: Sampling,
) -> Iterator[tuple[Outcome, float]]:
    ended = len(so_far) == N_TOKENS or any(map(context.model.is_end, so_far[-1:]))
    # What is too rare to be expected even once goes into the pool of the rest.
    if ended or probability * N_REPLIES < 1:
        yield so_far, probability
        return
    tokens = [*prompt, *so_far]
    context.forget(0, 0)
    decode(context, batch, tokens, 0)
    for token, share in shares(context.logits(len(tokens) - 1), tokens, sampling).items():
        following = (*so_far, token)
        yield from _outcomes(context, batch, prompt, following, probability * share, sampling)


def shares(logits: np.ndarray, tokens: Sequence[int], sampling: Sampling) -> dict[int, float]:
    """What llama.cpp's samplers leave, by its documentation: penalty, top-k, top-p, min-p, and then
    the temperature."""
    left = np.array(logits, dtype=np.float64)
    seen = list(set(tokens))
    penalty = sampling.repeat_penalty
    left[seen] = np.where(left[seen] > 0, left[seen] / penalty, left[seen] * penalty)
    order = np.argsort(-left, kind="stable")[: sampling.top_k or None]
    odds = softmax(left[order])
    before = np.cumsum(odds) - odds
    order = order[: int((before < sampling.top_p).sum())]
    order = order[left[order] >= left[order[0]] + np.log(max(sampling.min_p, 1e-300))]
    return dict(zip(order.tolist(), softmax(left[order] / sampling.temperature), strict=True))


def softmax(logits: np.ndarray) -> np.ndarray:
    odds = np.exp(logits - logits.max())
    return odds / odds.sum()


def sampled_by(rig: Rig, sampling: Sampling) -> Counter[Outcome]:
    """Beginnings of replies, some of whose drafts were accepted, and some not."""
    counts: Counter[Outcome] = Counter()
    n_accepted = n_drafted = 0
    for seed in range(N_REPLIES):
        # One token more than is compared: the last one is never drafted for.
        one = rig.reply(PROMPT, sampling=sampling, seed=seed, max_tokens=N_TOKENS + 1)
        counts[tuple(one.tokens[:N_TOKENS])] += 1
        n_accepted += sum(round_.n_accepted for round_ in one.rounds)
        n_drafted += sum(len(round_.drafted) for round_ in one.rounds)
    assert 0.1 * n_drafted < n_accepted < 0.9 * n_drafted
    return counts


def g_test(counts: Counter[Outcome], exact: dict[Outcome, float]) -> float:
    """How far off the counts are, in standard deviations (Wilson and Hilferty's approximation), of
    more than 20 outcomes that are likely enough to count."""
    assert sum(exact.values()) == pytest.approx(1.0)
    n_replies = counts.total()
    cells = {outcome: p * n_replies for outcome, p in exact.items() if p * n_replies >= 5}
    observed = [counts[outcome] for outcome in cells]
    expected = list(cells.values())
    observed.append(n_replies - sum(observed))
    expected.append(max(n_replies - sum(expected), 1e-9))
    g = 2 * sum(o * np.log(o / e) for o, e in zip(observed, expected, strict=True) if o)
    freedom = len(cells)
    assert freedom > 20
    spread = 2 / (9 * freedom)
    return float(((g / freedom) ** (1 / 3) - (1 - spread)) / np.sqrt(spread))


# --- what is drawn ---


@EACH
def test_replies_are_drawn_from_the_target_s_distribution(
    rig: Rig, tiny_models: tuple[Model, Model], sampling: Sampling
) -> None:
    """Plain ones too: `test_laws` has them write the very same tokens."""
    exact = outcomes(tiny_models[0], PROMPT, sampling)
    assert g_test(sampled_by(rig, sampling), exact) < WORST_Z


def test_noise_that_is_the_same_at_each_place_is_seen(
    rig: Rig, tiny_models: tuple[Model, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail."""
    monkeypatch.setattr(sampler, "gumbel", lambda seed, _place, ids: gumbel(seed, 0, ids))
    exact = outcomes(tiny_models[0], PROMPT, FREE)
    assert g_test(sampled_by(rig, FREE), exact) > WORST_Z


# --- what is accepted ---


def agreement(p: dict[int, float], q: dict[int, float]) -> float:
    """How often the largest of log p and of log q with the same Gumbel noise are the same token:
    both are token i if no other's exponential clock, at either rate, rings before."""
    ids, both = p.keys() | q.keys(), p.keys() & q.keys()
    return sum(
        1 / sum(max(p.get(other, 0) / p[id], q.get(other, 0) / q[id]) for other in ids)
        for id in both
    )


@EACH
def test_a_draft_agrees_with_the_target_as_often_as_their_distributions_let_it(
    rig: Rig,
    tiny_models: tuple[Model, Model],
    monkeypatch: pytest.MonkeyPatch,
    sampling: Sampling,
) -> None:
    first: list[dict[int, float]] = []
    guesses = Limits.guesses

    def listen(
        limits: Limits, likeliest: Sequence[tuple[int, float]], n_before: int
    ) -> list[Guess]:
        if n_before == 0 and not first:
            first.append(dict(likeliest))
        return guesses(limits, likeliest, n_before)

    monkeypatch.setattr(Limits, "guesses", listen)
    n_replies = 800
    n_accepted = sum(
        rig.reply(PROMPT, sampling=sampling, seed=seed, max_tokens=2).rounds[0].n_accepted
        for seed in range(n_replies)
    )
    model = tiny_models[0]
    with Context(model, n_ctx=64, n_batch=64, n_threads=1) as context, Batch(context) as batch:
        decode(context, batch, PROMPT, 0)
        p = shares(context.logits(len(PROMPT) - 1), PROMPT, sampling)
    q = first[0]
    expected = agreement(p, at_temperature(q, DRAFT_TEMPERATURE * sampling.temperature))
    error = (expected * (1 - expected) / n_replies) ** 0.5
    assert n_accepted / n_replies == pytest.approx(expected, abs=4 * error)


def at_temperature(q: dict[int, float], temperature: float) -> dict[int, float]:
    odds = {id: share ** (1 / temperature) for id, share in q.items()}
    return {id: one / sum(odds.values()) for id, one in odds.items()}


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_a_draft_that_is_unsure_agrees_more_often_than_its_likeliest_token(
    temperature: float,
) -> None:
    """Of a generated target, and of a draft whose logits are near the target's."""
    random, n_draws = np.random.default_rng(8), 100
    expected: list[float] = []
    likeliest: list[float] = []
    n_agreed = 0
    for place in range(60):
        logits = random.normal(0.0, 1.0, 10)
        p = dict(enumerate(softmax(logits / temperature).tolist()))
        q = dict(enumerate(softmax(logits + random.normal(0.0, 0.3, 10)).tolist()))
        best = max(q, key=q.__getitem__)
        expected.append(agreement(p, at_temperature(q, DRAFT_TEMPERATURE * temperature)))
        likeliest.append(p[best])
        for seed in range(n_draws):
            limits = Limits(3, noise=Noise(seed, place, temperature))
            drafted = limits.guesses([*q.items()], 2)[0].id
            drawn = np.argmax(logits / temperature + gumbel(seed, place + 2, [*p]))
            n_agreed += drafted == drawn
    n = len(expected) * n_draws
    assert n_agreed / n == pytest.approx(np.mean(expected), abs=4 * 0.5 / n**0.5)
    assert np.mean(expected) > 1.15 * np.mean(likeliest)

"""Replies are drawn from the target's own distribution, and drafts agree with it as often as they
can: held against llama.cpp's samplers as documented, computed from the target's logits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pytest

from eaglechat.engine.drafters.proposal import DRAFT_TEMPERATURE, Guess, Limits
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.llama.sampler import Noise, gumbel
from eaglechat.wire.protocol import Sampling
from tests import tiny
from tests.engine.rig import N_THREADS, Rig, decode

PROMPT = (tiny.BOS, *(tiny.TOKENS.index(letter) for letter in "thecatsat"))
FREE = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)
CUT = Sampling(temperature=0.8, top_k=12, top_p=0.9, min_p=0.04, repeat_penalty=1.3)


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


# --- what is drawn ---


@pytest.mark.parametrize("sampling", [FREE, CUT], ids=["free", "cut"])
def test_each_token_is_the_likeliest_under_the_noise_of_its_place(
    rig: Rig, tiny_models: tuple[Model, Model], sampling: Sampling
) -> None:
    """Of the target's distribution behind all that stands before it, whatever was drafted. Noise is
    independent between places and tokens (`test_noise`), so the tokens of a reply are independent
    draws."""
    n_accepted = n_drafted = n_drawn = 0
    wrong: list[tuple[int, int]] = []
    model = tiny_models[0]
    with (
        Context(model, n_ctx=64, n_batch=64, n_threads=N_THREADS) as context,
        Batch(context) as batch,
    ):
        for seed in range(60):
            reply = rig.reply(PROMPT, sampling=sampling, seed=seed, max_tokens=10)
            tokens = [*PROMPT, *reply.tokens]
            context.forget(0, 0)
            decode(context, batch, tokens, 0)
            for place in range(len(PROMPT), len(tokens)):
                likely = shares(context.logits(place - 1), tokens[:place], sampling)
                noise = gumbel(seed, place, [*likely])
                drawn = [*likely][int((np.log([*likely.values()]) + noise).argmax())]
                wrong += [(seed, place)] * (drawn != tokens[place])
            n_drawn += len(reply.tokens)
            n_accepted += sum(round_.n_accepted for round_ in reply.rounds)
            n_drafted += sum(len(round_.drafted) for round_ in reply.rounds)
    # Batches of another width add in another order, which decides where two nearly tie.
    assert len(wrong) <= 0.005 * n_drawn, wrong
    assert n_drawn > 400
    assert 0.1 * n_drafted < n_accepted < 0.9 * n_drafted


# --- what is accepted ---


def agreement(p: dict[int, float], q: dict[int, float]) -> float:
    """How often the largest of log p and of log q with the same Gumbel noise are the same token:
    both are token i if no other's exponential clock, at either rate, rings before."""
    ids, both = p.keys() | q.keys(), p.keys() & q.keys()
    return sum(
        1 / sum(max(p.get(other, 0) / p[id], q.get(other, 0) / q[id]) for other in ids)
        for id in both
    )


def test_a_draft_draws_with_the_noise_of_its_place(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    noises: list[Noise | None] = []
    guesses = Limits.guesses

    def listen(limits: Limits, likeliest: Sequence[tuple[int, float]], n: int) -> list[Guess]:
        if n == 0:
            noises.append(limits.noise)
        return guesses(limits, likeliest, n)

    monkeypatch.setattr(Limits, "guesses", listen)
    rounds = rig.reply(PROMPT, sampling=FREE, seed=5, max_tokens=30).rounds[:-1]
    sizes = [len(round_.tokens) for round_ in rounds]
    places = [len(PROMPT) + before for before in accumulate(sizes, initial=0)]
    assert noises[: len(rounds)] == [Noise(5, place, 0.8) for place in places[: len(rounds)]]


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

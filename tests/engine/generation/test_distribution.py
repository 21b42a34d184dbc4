"""Replies are drawn from the target's own distribution, whatever a draft draws: held against
llama.cpp's samplers as documented, computed from the target's logits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from math import sqrt
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from eaglechat.engine.drafters.proposal import Drafting, Draws, Limits, Proposal
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.llama.sampler import number_of
from eaglechat.engine.loop import Live
from eaglechat.engine.pair import LoadedPair
from eaglechat.engine.process import write_reply
from eaglechat.engine.reply import ReplyState
from eaglechat.gguf.pairing import check_pair
from eaglechat.wire.protocol import (
    AnyEvent,
    Chat,
    LoadOptions,
    Message,
    Progress,
    Sampling,
    Speculation,
)
from eaglechat.wire.records import Round
from tests import tiny
from tests.engine.kind_pairs import RANDOM, Write, all_drafters
from tests.engine.rig import N_THREADS, Rig, decode

PROMPT = (tiny.BOS, *(tiny.TOKENS.index(letter) for letter in "thecatsat"))
FREE = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)
CUT = Sampling(temperature=0.8, top_k=12, top_p=0.9, min_p=0.04, repeat_penalty=1.3)

Logits = Callable[[tuple[int, ...]], np.ndarray]
"""What a target predicts behind some tokens."""


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


# --- a seed that was asked for ---


@pytest.mark.parametrize("sampling", [FREE, CUT], ids=["free", "cut"])
def test_each_token_is_the_one_whose_share_has_the_number_of_its_place(
    rig: Rig, tiny_models: tuple[Model, Model], sampling: Sampling
) -> None:
    """Of the target's distribution behind all that stands before it, whatever was drafted. Numbers
    are independent between places (`test_sampler`), so the tokens of a reply are independent
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
                ids = sorted(likely)
                ends = np.cumsum([likely[id] for id in ids])
                drawn = ids[int((ends < number_of(seed, place)).sum())]
                wrong += [(seed, place)] * (drawn != tokens[place])
            n_drawn += len(reply.tokens)
            n_accepted += sum(round_.n_accepted for round_ in reply.rounds)
            n_drafted += sum(len(round_.drafted) for round_ in reply.rounds)
    # Batches of another width add in another order, which decides where two nearly tie.
    assert len(wrong) <= 0.005 * n_drawn, wrong
    assert n_drawn > 400
    assert 0.1 * n_drafted < n_accepted < 0.9 * n_drafted


# --- drafts that are drawn ---


def expected(
    logits: Logits, before: tuple[int, ...], sampling: Sampling, ends: int | None = None
) -> dict[tuple[int, ...], float]:
    """The probability of each reply of three tokens; one that `ends` a reply is its last."""
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(3):
        longer: dict[tuple[int, ...], float] = {}
        for reply, chance in found.items():
            if ends in reply:
                longer[reply] = chance
                continue
            text = (*before, *reply)
            for id, share in shares(logits(text), text, sampling).items():
                longer[(*reply, id)] = chance * share
        found = longer
    return found


def check_distribution(
    counted: Counter[tuple[int, ...]], wanted: Mapping[tuple[int, ...], float], freedom: int
) -> None:
    """Pearson's chi-square, with at least so many degrees of freedom. Replies that are expected
    fewer than eight times count as one."""
    n = counted.total()
    assert counted.keys() <= wanted.keys()
    rare = [reply for reply, chance in wanted.items() if chance * n < 8]
    bins = {reply: chance * n for reply, chance in wanted.items() if reply not in rare}
    observed = {reply: counted[reply] for reply in bins}
    if rare:
        bins[(-1,)] = sum(wanted[reply] for reply in rare) * n
        observed[(-1,)] = sum(counted[reply] for reply in rare)
    squares = sum((observed[one] - often) ** 2 / often for one, often in bins.items())
    assert len(bins) > freedom
    freedom = len(bins) - 1
    # Wilson and Hilferty: about normal. A right distribution is beyond 4.5 three times in a
    # million.
    spread = 2 / (9 * freedom)
    assert ((squares / freedom) ** (1 / 3) - (1 - spread)) / sqrt(spread) < 4.5


N_TOKENS = 6
"""Of a made-up vocabulary."""


class Made:
    """A made-up target and a draft that is often wrong: both predict by the last two tokens."""

    def __init__(self) -> None:
        random = np.random.default_rng(11)
        self.target = random.normal(0.0, 1.5, (N_TOKENS, N_TOKENS, N_TOKENS))
        self.draft = self.target + random.normal(0.0, 1.2, self.target.shape)
        # What the target may draw and the draft never does.
        self.draft[..., 0] -= 3.0

    def logits(self, text: Sequence[int]) -> np.ndarray:
        return self.target[text[-2], text[-1]].astype(np.float32)

    def drafting(self, text: list[int]) -> Drafting:
        while True:
            likely = softmax(self.draft[text[-2], text[-1]])
            best = np.argsort(-likely)[: N_TOKENS - 1].tolist()
            text.append((yield [(id, float(likely[id])) for id in best]))

    def reply(self, prompt: tuple[int, ...], sampling: Sampling, limits: Limits, seed: int) -> Any:
        """The tokens of a reply of three, and how many of those drafted first were accepted."""
        rows: list[np.ndarray] = []
        model = SimpleNamespace(
            n_vocab=N_TOKENS, is_end=lambda _id: False, piece=lambda _id: b"a", spelled=str
        )
        context = SimpleNamespace(model=model, n_ctx=64, logits=lambda row: rows[row])
        state = ReplyState(
            cast(Context, context),
            prompt,
            sampling,
            seed=seed,
            draws_drafts=True,
            max_tokens=3,
            stop=(),
        )
        tokens: list[int] = []
        first = None
        while state.finish is None:
            text = [*prompt, *tokens]
            n_max = min(limits.n_max, state.tokens_left - 1)
            drawing = replace(limits, n_max=n_max, draws=state.draws)
            proposal = drawing.chain(self.drafting([*text]), "made") if n_max else Proposal()
            rows[:] = [self.logits([*text, *proposal.ids[:n]]) for n in range(len(proposal) + 1)]
            written, path, _, _ = state.verify(proposal, 60)
            tokens += [one.id for one in written]
            first = len(path) if first is None else first
        return tuple(tokens), first


ENDS_EARLY = Limits(2, p_min=0.4)
PAYS = Limits(2, worth=[0.3, 0.25], by_probability=[step / 12 for step in range(10)])


def _made(name: str, sampling: Sampling, limits: Limits) -> list[Any]:
    return [
        pytest.param(sampling, limits, 4_000, id=name),
        pytest.param(sampling, limits, 50_000, id=f"{name}, often", marks=pytest.mark.slow),
    ]


@pytest.mark.parametrize(
    ("sampling", "limits", "n"),
    [
        *_made("free", FREE, Limits(2)),
        *_made("cut", CUT, Limits(2)),
        *_made("p_min", CUT, ENDS_EARLY),
        *_made("ends early", FREE, PAYS),
    ],
)
def test_drawn_drafts_leave_the_distribution_of_replies_as_it_is(
    sampling: Sampling, limits: Limits, n: int
) -> None:
    made, prompt = Made(), (3, 1)
    replies = [made.reply(prompt, sampling, limits, seed)[0] for seed in range(n)]
    check_distribution(Counter(replies), expected(made.logits, prompt, sampling), 20)


def test_of_drawn_drafts_as_many_are_accepted_as_the_two_have_in_common() -> None:
    """The best that can be: no other way to accept tokens leaves the distribution as it is and
    accepts more. Without draws it is what the target gives the draft's likeliest."""
    made, limits = Made(), Limits(1)
    in_common: list[float] = []
    of_likeliest: list[float] = []
    n_accepted = 0
    for last in range(N_TOKENS):
        prompt = (last, 2)
        p = shares(made.logits(prompt), prompt, FREE)
        likely = next(made.drafting([*prompt]))
        of_likeliest.append(p[likely[0][0]])
        q = Draws(Random(1), FREE.temperature).guess(likely).shares or {}
        in_common.append(sum(min(p.get(id, 0.0), share) for id, share in q.items()))
        n_accepted += sum(made.reply(prompt, FREE, limits, seed)[1] for seed in range(2_000))
    n = 2_000 * N_TOKENS
    assert n_accepted / n == pytest.approx(np.mean(in_common), abs=4 * 0.5 / sqrt(n))
    assert np.mean(in_common) > 1.1 * np.mean(of_likeliest)


@all_drafters
def test_a_kind_that_draws_leaves_the_distribution_as_it_is(
    write: Write, kind: str, drafter: str
) -> None:
    files, prompt = write(kind, mixed=True), tuple(RANDOM[:12])
    sampling = Sampling(temperature=1.5, top_k=3, top_p=0.95, min_p=0.02, repeat_penalty=1.2)
    counted = Counter[tuple[int, ...]]()
    n_accepted = 0
    with files.opened(drafter) as pair, Batch(pair.target) as batch:
        for seed in range(300):
            reply = pair.reply(prompt, sampling=sampling, seed=seed, draws_drafts=True, length=3)
            counted[tuple(reply.tokens)] += 1
            n_accepted += sum(round_.n_accepted for round_ in reply.rounds)
            assert reply.offs == []

        def logits(text: tuple[int, ...]) -> np.ndarray:
            pair.target.forget(0, 0)
            decode(pair.target, batch, text, 0)
            return pair.target.logits(len(text) - 1).copy()

        wanted = expected(logits, prompt, sampling)
    check_distribution(counted, wanted, 6)
    assert n_accepted > 0


def test_a_seed_that_is_asked_for_gives_the_same_reply_whatever_is_drafted(
    tiny_files: tuple[Path, Path],
) -> None:
    """Its drafts are the likeliest tokens. Without a seed, and unless a short draft is to be
    dropped, they are drawn."""
    options = LoadOptions(n_ctx=512, n_threads=N_THREADS)
    with closing(LoadedPair(check_pair(*tiny_files), options, calibrates=False)) as pair:

        def written(seed: int | None, **speculation: Any) -> tuple[list[int], int]:
            """The tokens of a reply, and the first that was drafted."""
            request = Chat(
                id=1,
                messages=(Message(role="user", content="the cat sat"),),
                sampling=Sampling(temperature=1.5, top_k=0, min_p=0.0, seed=seed),
                max_tokens=20,
            )
            said: list[AnyEvent] = []
            live = Live(Speculation(**speculation), request.sampling.temperature)
            write_reply(request, pair, live, said.append)
            steps = [event.step for event in said if isinstance(event, Progress)]
            rounds = [step for step in steps if isinstance(step, Round)]
            tokens = [token.id or 0 for round_ in rounds for token in round_.tokens]
            return tokens, next((one.id or 0 for r in rounds for one in r.drafted), -1)

        asked_for = [written(5, n_draft_max=n) for n in (0, 3, 3, 7)]
        assert len({tuple(tokens) for tokens, _ in asked_for}) == 1
        likeliest = asked_for[-1][1]
        for seed, n_min, is_drawn in ((5, 0, False), (None, 0, True), (None, 2, False)):
            first = {written(seed, n_draft_max=3, n_min=n_min)[1] for _ in range(12)}
            assert (first != {likeliest}) is is_drawn

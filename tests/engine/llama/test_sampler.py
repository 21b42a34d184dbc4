"""What the filters leave is what llama.cpp's samplers leave, and what is drawn from the likeliest
tokens alone is what would be from all; the numbers of the draws; and what the target held likely.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.engine.llama import sampler
from eaglechat.engine.llama.bindings import api
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.llama.sampler import REPEAT_LAST_N, Sampler, likeliest, number_of
from eaglechat.wire.errors import DecodeError
from eaglechat.wire.protocol import Sampling
from eaglechat.wire.records import Round
from tests import tiny
from tests.engine.rig import GREEDY, Rig, decode
from tests.tiny import write_model


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(3_000, 9_000), st.booleans())
def test_the_likeliest_are_those_of_a_sort(seed: int, count: int, n: int, some_never: bool) -> None:
    random = np.random.default_rng(seed)
    logits = random.standard_normal(n).astype(np.float32)
    if some_never:
        logits[random.random(n) < 0.5] = -np.inf
    found = likeliest(logits, count)
    if found is None:
        assert count > n // 64
    else:
        assert found.tolist() == np.argsort(-logits, kind="stable")[:count].tolist()


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["everywhere", "at one token"])
@pytest.mark.parametrize(
    ("temperature", "top_k", "repeat_penalty"),
    [(0.0, 40, 1.0), (0.0, 40, 1.1), (0.7, 40, 1.0), (0.7, 40, 1.1), (0.7, 0, 1.0)],
)
@pytest.mark.parametrize("lists", [False, True])
def test_logits_that_are_no_numbers_are_an_error(  # noqa: PLR0917
    large: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: float,
    where: str,
    temperature: float,
    top_k: int,
    repeat_penalty: float,
    lists: bool,
) -> None:
    """A token that the model never writes has -inf, which is right."""
    monkeypatch.setattr(sampler, "_MOST_LISTED", 256 if lists else 0)
    sampling = Sampling(
        temperature=temperature, top_k=top_k, top_p=1.0, min_p=0.0, repeat_penalty=repeat_penalty
    )
    drawn = Sampler(sampling, 1, [5, 6])
    with (
        Model(large) as model,
        Context(model, n_ctx=256, n_batch=64, n_threads=1) as context,
        Batch(context) as batch,
    ):
        decode(context, batch, [5, 6], 0)
        row = context.logits(1)
        row[slice(None) if where == "everywhere" else 17] = broken
        if where == "at one token" and broken == -np.inf:
            assert drawn.sample(context, 1, 2) != 17
            return
        with pytest.raises(DecodeError, match="logits are not numbers"):
            drawn.sample(context, 1, 2)
        with pytest.raises(DecodeError, match="logits are not numbers"):
            drawn.look(context, 1, 2, None, top=3, drafted=[])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with a vocabulary of 8,000 tokens."""
    path = tmp_path_factory.mktemp("large") / "large.gguf"
    return write_model(path, "{{ messages }}", [f"<|{number}|>" for number in range(7743)])


@pytest.mark.parametrize(
    ("temperature", "top_k", "repeat_penalty"),
    [(0.7, 40, 1.0), (5.0, 40, 1.0), (0.7, 40, 1.3), (0.0, 40, 1.3), (0.7, 100, 1.1)],
)
def test_the_same_tokens_are_drawn_as_from_the_whole_vocabulary(
    large: Path,
    temperature: float,
    top_k: int,
    repeat_penalty: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampling = Sampling(
        temperature=temperature, top_k=top_k, top_p=0.95, min_p=0.001, repeat_penalty=repeat_penalty
    )
    text = [1]
    drawn = Sampler(sampling, 7, text)
    with (
        Model(large) as model,
        Context(model, n_ctx=256, n_batch=8, n_threads=1) as context,
        Batch(context) as batch,
    ):
        for position in range(80):
            decode(context, batch, text[-1:], position)
            with monkeypatch.context() as patched:
                patched.setattr(sampler, "_MOST_LISTED", 0)
                whole = drawn.sample(context, 0, position)
            assert drawn.sample(context, 0, position) == whole
            text.append(whole)


@pytest.mark.parametrize("seed", range(60))
def test_the_filters_leave_what_llama_cpp_s_samplers_leave(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.choice([50, 5_000]))
    logits = (random.standard_normal(n) * random.choice([0.5, 3.0, 10.0])).astype(np.float32)
    logits[random.random(n) < 0.1] = -np.inf
    text = random.integers(0, n, 100).tolist()
    sampling = Sampling(
        temperature=float(random.choice([0.3, 0.7, 1.5])),
        top_k=int(random.choice([0, 1, 40, 300, 2**32 + 1])),
        top_p=float(random.choice([0.0, 0.3, 0.95, 1.0])),
        min_p=float(random.choice([0.0, 0.05, 1.0])),
        repeat_penalty=float(random.choice([0.8, 1.0, 1.3])),
    )
    found = dict(zip(*Sampler(sampling, 1, text)._left(logits), strict=True))
    expected = left_by_llama_cpp(sampling, text, logits)
    assert found.keys() == expected.keys()
    assert [*found.values()] == pytest.approx([expected[id] for id in found], rel=1e-5)


def left_by_llama_cpp(sampling: Sampling, text: list[int], logits: np.ndarray) -> dict[int, float]:
    """The tokens that a chain of llama.cpp's samplers leaves, and their logits then."""
    n = len(logits)
    chain = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
    for stage in (
        api.llama_sampler_init_penalties(n, REPEAT_LAST_N, sampling.repeat_penalty, 0.0, 0.0),
        api.llama_sampler_init_top_k(min(sampling.top_k, n)),
        api.llama_sampler_init_top_p(sampling.top_p, 1),
        api.llama_sampler_init_min_p(sampling.min_p, 1),
        api.llama_sampler_init_temp(sampling.temperature),
    ):
        api.llama_sampler_chain_add(chain, stage)
    for token in text:
        api.llama_sampler_accept(chain, token)
    rows: Any = (api.llama_token_data * n)()
    for id, logit in enumerate(logits.tolist()):
        rows[id].id, rows[id].logit = id, logit
    array = api.llama_token_data_array(rows, n, -1, False)
    api.llama_sampler_apply(chain, ctypes.byref(array))
    left = {array.data[place].id: array.data[place].logit for place in range(array.size)}
    api.llama_sampler_free(chain)
    return left


# --- the numbers that decide the draws ---


MANY = range(100_000)


@pytest.mark.parametrize("varies", ["seed", "place"])
def test_they_are_uniform(varies: str) -> None:
    found = [number_of(one, 7) if varies == "seed" else number_of(3, one) for one in MANY]
    numbers = np.sort(found)
    assert 0.0 <= numbers[0] <= numbers[-1] < 1.0
    distance = np.abs(numbers - (np.arange(len(MANY)) + 0.5) / len(MANY)).max()
    # Kolmogorov and Smirnov: a right one exceeds this once in 10,000 times.
    assert distance < 2.23 / len(MANY) ** 0.5


@pytest.mark.parametrize(("seed", "step"), [(4, 0), (4, 1), (3, 1), (37, 0), (2, -1)])
def test_they_are_independent_in_seed_and_place(seed: int, step: int) -> None:
    """Also where seed and place seem to make up for each other."""
    numbers = [number_of(3, place) for place in MANY]
    others = [number_of(seed, place + step) for place in MANY]
    assert abs(np.corrcoef(numbers, others)[0, 1]) < 4 / len(MANY) ** 0.5


# --- what the target held likely, recorded beside what it sampled ---


HOT = Sampling(temperature=0.8, top_k=6, top_p=0.95, min_p=0.02)
PENALISED = Sampling(temperature=0.0, repeat_penalty=1.3)
ANY = pytest.mark.parametrize(
    "sampling",
    [GREEDY, HOT, PENALISED, Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)],
    ids=["greedy", "filtered", "penalised", "unfiltered"],
)


@pytest.fixture
def prompt(rig: Rig) -> tuple[int, ...]:
    return rig.prompt("Tell me about rain.")


def looked_at(rig: Rig, prompt: tuple[int, ...], **options: Any) -> list[Round]:
    rounds = rig.reply(prompt, top=5, max_tokens=40, **options).rounds
    assert rounds
    return rounds


@ANY
def test_looking_changes_no_token_and_has_what_was_likely_in_its_place(
    rig: Rig, prompt: tuple[int, ...], sampling: Sampling
) -> None:
    looked = looked_at(rig, prompt, sampling=sampling, seed=7)
    plain = rig.reply(prompt, max_tokens=40, sampling=sampling, seed=7).rounds

    assert [r.tokens for r in looked] == [r.tokens for r in plain]
    assert not any(r.likely for r in plain)
    for round_ in looked:
        assert len(round_.likely) == len(round_.tokens)
        for place, (token, likely) in enumerate(zip(round_.tokens, round_.likely, strict=True)):
            by_id = {one.id: one for one in likely}
            assert len(likely) >= 5
            assert token.id in by_id
            assert by_id[token.id].chance > 0
            if place < len(round_.drafted):
                assert round_.drafted[place].id in by_id
            probabilities = [one.probability for one in likely]
            assert probabilities == sorted(probabilities, reverse=True)
            assert 0 < sum(probabilities) <= 1 + 1e-6
            chances = [one.chance for one in likely]
            assert sum(chances) <= 1 + 1e-5
            if sampling is GREEDY:
                assert likely[0].id == token.id
                assert chances == [1.0] + [0.0] * (len(likely) - 1)


def test_control_tokens_have_their_names(rig: Rig, prompt: tuple[int, ...]) -> None:
    first = rig.reply(prompt, top=len(tiny.TOKENS), max_tokens=1).rounds[0]
    named = {one.id: one.text for one in first.likely[0]}
    for token in (tiny.BOS, tiny.EOS):
        assert named[token] == tiny.TOKENS[token]

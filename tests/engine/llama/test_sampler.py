"""Only the likeliest tokens are handed to llama.cpp's samplers: what is drawn is what would be from
all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.engine.llama import sampler
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.llama.sampler import Sampler, likeliest
from eaglechat.wire.errors import DecodeError
from tests.engine.rig import decode
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


def test_a_logit_that_is_no_number_leaves_the_choice_to_llama_cpp() -> None:
    logits = np.full(4096, np.nan, dtype=np.float32)
    assert likeliest(logits, 40) is None


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
    settings = {
        "temperature": temperature, "top_k": top_k, "top_p": 1.0, "min_p": 0.0,
        "repeat_penalty": repeat_penalty, "seed": 1,
    }  # fmt: skip
    with (
        Model(large) as model,
        Context(model, n_ctx=256, n_batch=64, n_threads=1) as context,
        Batch(context) as batch,
        Sampler(model, **settings) as drawn,
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
            drawn.look(context, 1, 2, 3, [])


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
    with Model(large) as model, Context(model, n_ctx=256, n_batch=8, n_threads=1) as context:
        settings = {
            "temperature": temperature, "top_k": top_k, "top_p": 0.95, "min_p": 0.001,
            "repeat_penalty": repeat_penalty, "seed": 7,
        }  # fmt: skip
        with Batch(context) as batch, Sampler(model, **settings) as listed:
            monkeypatch.setattr(sampler, "_MOST_LISTED", 0)
            with Sampler(model, **settings) as whole:
                token = 1
                for position in range(80):
                    decode(context, batch, [token], position)
                    token = listed.sample(context, 0, position)
                    assert token == whole.sample(context, 0, position)


def test_a_top_k_beyond_32_bits_is_the_whole_vocabulary(large: Path) -> None:
    """As 32 bits 2**32 + 1 is 1, which would be greedy."""
    settings = {"temperature": 5.0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
    with Model(large) as model, Context(model, n_ctx=256, n_batch=8, n_threads=1) as context:
        with Batch(context) as batch:
            decode(context, batch, [1], 0)
        drawn = set()
        for seed in range(5):
            with Sampler(model, top_k=2**32 + 1, seed=seed, **settings) as sampler:
                drawn.add(sampler.sample(context, 0, 1))
        assert len(drawn) > 1

"""What the target held likely, recorded beside what it sampled."""

from __future__ import annotations

from typing import Any

import pytest

from eaglechat.wire.protocol import Sampling
from eaglechat.wire.records import Round
from tests import tiny
from tests.engine.rig import GREEDY, Rig

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
            assert sum(one.chance for one in likely) <= 1 + 1e-5


def test_control_tokens_have_their_names(rig: Rig, prompt: tuple[int, ...]) -> None:
    first = rig.reply(prompt, top=len(tiny.TOKENS), max_tokens=1).rounds[0]
    named = {one.id: one.text for one in first.likely[0]}
    for token in (tiny.BOS, tiny.EOS):
        assert named[token] == tiny.TOKENS[token]


def test_filters_leave_tokens_without_a_chance(rig: Rig, prompt: tuple[int, ...]) -> None:
    two = Sampling(temperature=0.8, top_k=2, top_p=1.0, min_p=0.0)
    for round_ in looked_at(rig, prompt, sampling=two):
        for likely in round_.likely:
            assert [one.chance > 0 for one in likely[:3]] == [True, True, False]
            assert sum(one.chance for one in likely) == pytest.approx(1.0, abs=1e-5)


def test_greedy_gives_all_the_chance_to_the_likeliest(rig: Rig, prompt: tuple[int, ...]) -> None:
    for round_ in looked_at(rig, prompt):
        for token, likely in zip(round_.tokens, round_.likely, strict=True):
            assert likely[0].id == token.id
            assert [one.chance for one in likely] == [1.0] + [0.0] * (len(likely) - 1)

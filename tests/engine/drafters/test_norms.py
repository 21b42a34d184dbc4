"""EAGLE-3.1's norms: drafts are those of a reference that reads one row at a time."""

from __future__ import annotations

import numpy as np
import pytest

from eaglechat.engine.drafters.base import Likeliest
from eaglechat.engine.drafters.eagle3 import Norms
from eaglechat.engine.drafters.proposal import Limits
from eaglechat.engine.llama.objects import Batch, Context
from tests.engine.drafters.by_hand import Driver, Models, prompt_of
from tests.engine.rig import open_contexts, open_rig

EPS = 1e-5


def weights(width: int) -> np.ndarray:
    return np.random.default_rng(5).uniform(-3.0, 3.0, width).astype(np.float32)


def rms(values: np.ndarray) -> np.ndarray:
    return values / np.sqrt((values * values).mean(-1, keepdims=True) + EPS)


def following(
    models: Models, tokens: list[int], along: list[int], norms: Norms
) -> tuple[int, float]:
    """The likeliest token to follow `tokens` and the drafted tokens `along`, with its probability,
    as the paper describes it."""
    with (
        open_contexts(*models, n_seq=1) as (target, draft),
        Batch(target) as batch,
        Batch(draft) as own,
    ):
        target.extract_layer_inputs(draft.model.target_layers, True)
        draft.export_states()
        batch.add_tokens(tokens[:-1], 0, 0, output=False)
        assert target.decode(batch) == 0
        layers = [target.layer_inputs(one, len(batch)) for one in draft.model.target_layers]
        features = np.concatenate([rms(one) if norms.features else one for one in layers], axis=1)
        states = encoded(draft, own, features)
        for position, token in enumerate(tokens[1:]):
            decode(draft, own, token, position, states[position])
        for position, token in enumerate(along, len(tokens) - 1):
            state = draft.state(0)[0].copy()
            state = state if norms.output is None else rms(state) * norms.output
            decode(draft, own, token, position, state)
        return Likeliest().top_k(draft.logits(0))[0]


def encoded(draft: Context, batch: Batch, features: np.ndarray) -> np.ndarray:
    batch.clear()
    batch.add_features(features, 0, 0)
    assert draft.encode(batch) == 0
    return draft.states(len(features)).copy()


def decode(draft: Context, batch: Batch, token: int, position: int, state: np.ndarray) -> None:
    batch.clear()
    batch.add_tokens([token], position, 0, output=True, states=np.array([state]))
    assert draft.decode(batch) == 0


@pytest.mark.parametrize("is_tree", [False, True])
@pytest.mark.parametrize(("features", "output"), [(True, False), (False, True), (True, True)])
def test_a_draft_of_eagle_3_1(
    tiny_models: Models, features: bool, output: bool, is_tree: bool
) -> None:
    norms = Norms(EPS, features, weights(tiny_models[1].n_embd) if output else None)
    prompt = prompt_of(tiny_models[0])
    with open_rig(*tiny_models, norms=norms) as rig, Batch(rig.target) as batch:
        driver = Driver(rig.target, rig.draft, rig.drafter, batch, Limits(6, is_tree=is_tree))
        driver.prefill(prompt)
        proposal = driver.propose()
    drafted, parents, shares = proposal.ids, proposal.parents, proposal.probabilities
    # The likeliest of each parent's children.
    firsts = [place for place, parent in enumerate(parents) if parent not in parents[:place]]
    differences = []
    for place in firsts:
        along = [drafted[i] for i in proposal.path(place)[:-1]]
        token, share = following(tiny_models, prompt, along, norms)
        assert drafted[place] == token
        assert shares[place] == pytest.approx(share, rel=0.002)
        plain = following(tiny_models, prompt, along, Norms())
        differences.append(plain != pytest.approx((token, share), rel=0.01))
    assert any(differences)

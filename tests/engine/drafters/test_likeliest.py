"""A draft's likeliest tokens: those of a plain softmax over all logits, also where its graphs end
behind its output head."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from eaglechat.engine.drafters.base import Likeliest, ProcessError
from eaglechat.engine.drafters.eagle3 import Eagle3Drafter
from eaglechat.engine.drafters.proposal import Limits
from eaglechat.engine.llama.objects import Batch, Context, DraftHead, Model
from eaglechat.wire.protocol import Shape
from tests import tiny
from tests.engine.drafters.by_hand import Driver
from tests.engine.rig import Rig, open_contexts, open_rig

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


# --- graphs that end behind the head ---


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_drafts_are_those_of_a_whole_graph(
    tiny_models: tuple[Model, Model], shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_rig(*tiny_models, shape=shape) as rig:
        short = _drafted(rig)
        assert rig.draft.head is not None
        assert rig.draft.head.is_last
    # A head without logits: the logits are those of the context, so no graph ends early.
    monkeypatch.setattr(DraftHead, "logits", lambda *_: np.empty(0, dtype=np.float32))
    with open_rig(*tiny_models, shape=shape) as rig:
        assert _drafted(rig) == short
        assert rig.draft.head is not None
        assert not rig.draft.head.is_last


def test_the_next_drafter_of_a_context_drafts_the_same(tiny_models: tuple[Model, Model]) -> None:
    texts = [[start, start + 1, start + 2] for start in range(6)]
    with open_contexts(*tiny_models) as (target, draft):
        drafts = [_first_draft(target, draft, text) for text in texts]
    for text, drafted in zip(texts, drafts, strict=True):
        with open_contexts(*tiny_models) as (target, draft):
            assert _first_draft(target, draft, text) == drafted
    assert len({drafted[0] for drafted in drafts}) > 1


def test_a_draft_whose_tokens_stand_in_another_order_keeps_its_whole_graph(
    tiny_models: tuple[Model, Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its head has the same logits as the context, but at the places of other tokens."""
    with open_rig(*tiny_models) as rig:
        in_order = _drafted(rig)
    monkeypatch.setattr(tiny, "DRAFT_VOCABULARY", tiny.DRAFT_VOCABULARY[::-1])
    with (
        Model(tiny.write_draft(tmp_path / "draft.gguf")) as draft,
        open_rig(tiny_models[0], draft) as rig,
    ):
        assert _drafted(rig) == in_order
        assert rig.draft.head is not None
        assert not rig.draft.head.is_last


def _first_draft(target: Context, draft: Context, text: list[int]) -> list[int]:
    with closing(Eagle3Drafter(target, draft)) as drafter, Batch(target) as batch:
        driver = Driver(target, draft, drafter, batch, Limits(4))
        driver.prefill([*text, 4])
        drafted = driver.propose().ids
    target.forget(0, 0)
    draft.forget(0, 0)
    return drafted


def _drafted(rig: Rig) -> list[tuple[object, ...]]:
    """What was drafted in two replies, the second after a prompt that fills several batches."""
    replies = (
        rig.reply(rig.prompt("Tell me about rain."), n_draft_max=4, max_tokens=40),
        rig.reply(rig.prompt("Tell me about rain. " * 20), n_draft_max=4, max_tokens=40),
    )
    return [round_.drafted for reply in replies for round_ in reply.rounds]

"""An EAGLE-3 drafter below the loop: its contexts, how a prompt reaches it, what it drafts."""

from __future__ import annotations

import time

import numpy as np
import pytest

from eaglechat.engine.drafters.eagle3 import Eagle3Drafter
from eaglechat.engine.drafters.proposal import Limits
from eaglechat.engine.llama.objects import Batch
from tests import tiny
from tests.engine.drafters.by_hand import Driver, Models, by_hand, prompt_of
from tests.engine.rig import decode, open_contexts

LONG = "the quick brown fox " * 12


def test_closing_again_or_after_the_target_is_harmless_and_use_after_it_an_error(
    tiny_models: Models,
) -> None:
    with open_contexts(*tiny_models) as (target, draft), Batch(target) as batch:
        drafter = Eagle3Drafter(target, draft)
        driver = Driver(target, draft, drafter, batch, Limits(3))
        driver.prefill(prompt_of(target.model))
        drafter.close()
        drafter.close()
        with pytest.raises(RuntimeError, match="closed"):
            driver.propose()
        draft.close()
        target.close()
        drafter.close()


# --- a prompt ---


def test_a_conversation_resumed_behind_the_draft_window_drafts_on(tiny_models: Models) -> None:
    with by_hand(tiny_models, window=8) as driver:
        prompt = prompt_of(driver.target.model, LONG)
        driver.prefill(prompt)
        driver.round()
        kept = driver.drafter.resume(prompt[:10])
        driver.target.forget(0, kept)
        decode(driver.target, driver.batch, prompt[kept:10], kept)
        driver.drafter.see(driver.batch)
        driver.n_past, driver.id_last = 10, prompt[10]
        for _ in range(5):
            driver.round()
        assert driver.drafter.known == driver.n_past


# --- drafts ---


def test_the_probability_is_the_draft_s_softmax_over_its_top_ten(
    tiny_models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drafter that shares its contexts does not end their graphs, so the logits are theirs."""
    seen: list[np.ndarray] = []
    with by_hand(tiny_models, seq_id=0) as driver:
        driver.prefill(prompt_of(driver.target.model))
        logits_of = driver.draft.logits
        monkeypatch.setattr(
            driver.draft, "logits", lambda row: seen.append(np.array(logits_of(row))) or seen[-1]
        )
        proposal = driver.propose()

    assert len(proposal) == len(seen) == 3
    for logits, id, probability in zip(seen, proposal.ids, proposal.probabilities, strict=True):
        top = np.exp(np.sort(logits)[::-1][:10] - logits.max())
        assert id == logits.argmax()
        assert id in tiny.DRAFT_VOCABULARY
        assert probability == pytest.approx(1 / top.sum())


def test_encoder_time_is_counted_once(tiny_models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that stands still but for the encoder, which takes a second."""
    with by_hand(tiny_models, n_batch_draft=32) as driver:
        encodes: list[int] = []
        encode = driver.draft.encode
        monkeypatch.setattr(
            driver.draft, "encode", lambda batch: encodes.append(len(batch)) or encode(batch)
        )
        monkeypatch.setattr(time, "perf_counter", lambda: float(len(encodes)))
        driver.prefill(prompt_of(driver.target.model, LONG))
        driver.round()
        driver.round()

    assert len(encodes) > 2
    assert driver.drafter.process_ms == len(encodes) * 1000.0


@pytest.mark.real
def test_the_real_draft_reads_its_layers(real_models: Models) -> None:
    with by_hand(real_models) as driver:
        assert driver.drafter.layers == (2, 15, 27)

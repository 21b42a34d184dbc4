"""An EAGLE-3 drafter below the loop: its contexts, how a prompt reaches it, what it drafts."""

from __future__ import annotations

import time

import pytest

from eaglechat.engine.drafters.eagle3 import Eagle3Drafter
from eaglechat.engine.drafters.proposal import Limits
from eaglechat.engine.llama.objects import Batch
from tests.engine.drafters.by_hand import Driver, Models, by_hand, prompt_of
from tests.engine.rig import open_contexts

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

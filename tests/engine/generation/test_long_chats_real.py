"""The built-in pair after turns have left its context."""

from __future__ import annotations

import pytest

from eaglechat.engine.llama.objects import Model
from tests.engine.rig import N_THREADS
from tests.measure.measure_long_chats import QUESTIONS, Acceptance, shifted_and_fresh

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_after_a_shift_as_much_is_accepted_as_after_a_fresh_prefill(
    real_models: tuple[Model, Model],
) -> None:
    shifted, fresh, turns = Acceptance(), Acceptance(), 0
    size = {"n_ctx": 256, "max_tokens": 32, "n_threads": N_THREADS}
    for one, other in shifted_and_fresh(real_models, questions=QUESTIONS[:8], **size):
        shifted += one
        fresh += other
        turns += 1

    assert turns >= 3
    assert fresh.accepted >= 20
    # Judged by the same texts, so that only the caches differ. Keys turned to wrong positions, or
    # features at wrong ones, cost a third and more.
    assert shifted.accepted == pytest.approx(fresh.accepted, rel=0.15)

"""How a prompt reaches the draft: at once, in pieces, while it is read, or only its latest rows."""

from __future__ import annotations

import pytest

from tests.engine.drafters.session_rig import Models, bench, prompt_of
from tests.engine.rig import decode


@pytest.mark.parametrize("chunk", [256, 40, 7])
def test_how_the_prompt_is_cut_makes_no_difference(tiny_models: Models, chunk: int) -> None:
    """Also where a chunk is larger than the draft's batch."""
    drafts = []
    for n_batch_draft, size in ((256, 13), (32, chunk)):
        with bench(tiny_models, n_batch_draft=n_batch_draft, n_draft_max=8) as here:
            driver = here.driver()
            driver.prefill(prompt_of(here.target.model, "the quick brown fox " * 12), chunk=size)
            drafts.append([driver.round() for _ in range(10)])

    assert drafts[0] == drafts[1]


@pytest.mark.parametrize("chunk", [1, 7, 40])
def test_a_prompt_taken_in_while_it_is_read_drafts_as_one_that_waited(
    tiny_models: Models, chunk: int
) -> None:
    drafts = []
    for take_in in (False, True):
        with bench(tiny_models, n_batch_draft=32, n_draft_max=8) as here:
            driver = here.driver()
            prompt = prompt_of(here.target.model, "the quick brown fox " * 12)
            driver.prefill(prompt, chunk=chunk, take_in=take_in)
            assert (here.session.waiting(0) == 1) is take_in
            assert here.session.known_length(0) == len(prompt) - 1
            drafts.append([driver.round() for _ in range(10)])

    assert drafts[0] == drafts[1]


def test_a_rewind_behind_the_draft_window_drafts_on(tiny_models: Models) -> None:
    with bench(tiny_models, draft_window=8) as here:
        driver = here.driver()
        prompt = prompt_of(here.target.model, "the quick brown fox " * 12)
        driver.prefill(prompt)
        driver.round()
        here.target.forget(0, 10)
        here.session.rewind(0, 10)
        driver.n_past, driver.id_last = 10, prompt[10]
        # The row before position 10 is gone with the cache: one more token brings a new one.
        decode(here.target, here.batch, [driver.id_last], 10, seq_id=0)
        here.session.process(here.batch)
        driver.n_past, driver.id_last = 11, prompt[11]
        for _ in range(5):
            driver.round()
        assert here.session.known_length(0) == driver.n_past

"""Drafting with MTP heads, beside what holds of every drafter (test_laws)."""

from __future__ import annotations

import pytest

from eaglechat.engine.drafters import mtp
from eaglechat.engine.drafters.proposal import Limits
from eaglechat.engine.llama.objects import Batch
from tests.engine.kind_pairs import RANDOM, Write
from tests.engine.rig import decode


def test_rows_without_output_may_have_to_go_in_a_batch_of_their_own(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with architectures that do not let rows of both kinds be in one."""
    drafts = []
    for merged in (True, False):
        with monkeypatch.context() as patched:
            if not merged:
                patched.setattr(mtp, "STATES_OF_ALL_ROWS", ())
            with (
                write("hy_v3", mixed=True).opened("mtp") as pair,
                Batch(pair.target) as batch,
            ):
                driver = pair.driver(batch, 7)
                driver.prefill(RANDOM[:20])
                drafts.append([driver.round() for _ in range(8)])
    assert drafts[0] == drafts[1]


def test_an_assistant_waits_until_the_keys_it_reads_have_shifted(write: Write) -> None:
    """llama.cpp moves the target's keys in the target's next decode."""
    with write("gemma4, assistant", mixed=True).opened("mtp") as pair, Batch(pair.target) as batch:
        drafter, text = pair.drafter, RANDOM[:20]
        decode(pair.target, batch, text, 0, output=False)
        drafter.see(batch)
        pair.target.shift(0, 5, 10)
        drafter.shift(5, 10)
        # The last position is decoded once more.
        assert drafter.known == 14
        assert drafter.resume([*text[:5], *text[10:]]) == 14
        pair.target.forget(0, 14)
        decode(pair.target, batch, text[19:], 14, output=False)
        drafter.see(batch)
        at_once = drafter.propose(15, 3, Limits(7))
        decode(pair.target, batch, [9], 15, output=False)
        pair.target.forget(0, 15)
        later = drafter.propose(15, 3, Limits(7))
        drafter.shift(12, 20)
        assert drafter.known == 11

    assert at_once.ids == later.ids
    assert at_once.probabilities == pytest.approx(later.probabilities, abs=0.001)


def test_a_prompt_that_is_asked_for_again_costs_no_more(write: Write) -> None:
    """A reply may be cancelled before the position to be seen again was decoded."""
    with write("hy_v3").opened("mtp") as pair, Batch(pair.target) as batch:
        decode(pair.target, batch, RANDOM[:20], 0, output=False)
        pair.drafter.see(batch)
        pair.drafter.take_in()
        for _ in range(3):
            assert pair.drafter.resume(RANDOM[:12]) == 11
        assert pair.drafter.resume(RANDOM[:5]) == 4
        assert pair.drafter.resume([]) == 0

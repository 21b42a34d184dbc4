"""A drafter that fails is given up for the rest of a reply."""

from __future__ import annotations

from eaglechat.engine.drafters.ngram import NgramDrafter
from eaglechat.engine.generation.drafting import Drafting
from eaglechat.wire.protocol import Speculation


def test_a_failure_that_a_reply_never_told_of_is_not_told_of_the_next() -> None:
    drafting = Drafting(NgramDrafter())
    drafting.give_up(RuntimeError("broken"))
    assert not drafting.on
    drafting.new_reply(Speculation())
    assert (drafting.on, drafting.failure()) == (True, None)

"""n-grams first, another drafter where they find nothing; both know what the target holds."""

from __future__ import annotations

import pytest

from eaglechat.engine.drafters.base import Limits, Proposal
from eaglechat.engine.drafters.eagle3.drafter import Eagle3Drafter
from eaglechat.engine.drafters.lookup_first import LookupFirst
from eaglechat.engine.generation.live import Live
from eaglechat.engine.llama.objects import Model
from eaglechat.wire.protocol import AUTO, Set, Speculation
from tests.engine.rig import check_bookkeeping, open_rig, plainly

REPEATS = [1, 2, 3, 4, 5, 1, 2, 3]


def alone(tokens: list[int]) -> LookupFirst:
    drafter = LookupFirst(None)
    assert drafter.resume(tokens, to_draft=True) == len(tokens)
    return drafter


def test_what_followed_before_is_proposed() -> None:
    proposal = alone(REPEATS).propose(8, 4, Limits(3, n_lookup=3))
    assert (proposal.ids, {token.drafter for token in proposal}) == ([5, 1, 2], {"ngram"})


@pytest.mark.parametrize(
    "limits",
    [
        Limits(3, n_lookup=0),
        Limits(3, n_lookup=3, n_min=4),
        Limits(3, n_lookup=3, p_min=0.99),
        Limits(3, n_lookup=3, taken=lambda _found: 0),
    ],
    ids=["off", "too short", "not likely enough", "not worth it"],
)
def test_nothing_is_proposed_that_the_limits_forbid(limits: Limits) -> None:
    assert not alone(REPEATS).propose(8, 4, limits)


def test_only_the_part_that_is_worth_it_is_proposed() -> None:
    seen: list[Proposal] = []

    def taken(found: Proposal) -> int:
        seen.append(found)
        return 2

    proposal = alone(REPEATS).propose(8, 4, Limits(0, n_lookup=9, taken=taken))
    assert proposal.ids == [5, 1]
    assert len(seen[0]) == 9


def test_the_switch_is_live_and_changes_no_token(tiny_models: tuple[Model, Model]) -> None:
    with open_rig(*tiny_models, make_drafter=lambda s: LookupFirst(Eagle3Drafter(s))) as rig:
        prompt = rig.prompt("the cat sat on the mat and the cat sat on the hat")
        plain = rig.reply(prompt, live=plainly(), max_tokens=160)
        live = Live(Speculation(n_draft_max=8, ngram=False), 0.0)
        rounds = []
        for event in rig.stream(prompt, live=live, max_tokens=160):
            if hasattr(event, "drafted"):
                rounds.append(event)
                if len(rounds) == 8:
                    live.apply(Set(ngram=True))
        drafters = [{token.drafter for token in round_.drafted} for round_ in rounds]
        assert {"ngram"} not in drafters[:8]
        assert {"ngram"} in drafters[8:]
        assert [t.id for r in rounds for t in r.tokens] == plain.tokens


def test_without_a_draft_auto_verifies_what_it_looks_up(tiny_models: tuple[Model, Model]) -> None:
    with open_rig(*tiny_models, make_drafter=lambda _session: LookupFirst(None)) as rig:
        prompt = rig.prompt("the cat sat on the mat and the cat sat on the hat")
        plain = rig.reply(prompt, live=plainly(), max_tokens=160)
        for length in (AUTO, 16):
            live = Live(Speculation(n_draft_max=length, ngram=True), 0.0)
            reply = rig.reply(prompt, live=live, max_tokens=160)
            assert reply.tokens == plain.tokens
            assert not reply.offs
            check_bookkeeping(reply, prompt)

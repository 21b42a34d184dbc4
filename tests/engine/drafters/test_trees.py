"""Trees: at least as many tokens are accepted as of a chain, and the text is that of plain
decoding."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.engine.bench.prompts import builtin_prompts
from eaglechat.engine.drafters.proposal import Guess, Proposal
from eaglechat.engine.llama.objects import Model
from eaglechat.engine.loop import Live
from eaglechat.engine.sequences import common_prefix
from eaglechat.wire.protocol import Speculation
from eaglechat.wire.records import LAST_TOKEN
from tests.engine.generation.test_loop_drafters import verdict_on
from tests.engine.rig import Rig, open_rig, plainly

_IDS = range(20, 24)
"""Few tokens: what is drafted is often what is sampled."""


@st.composite
def trees(draw: st.DrawFn) -> Proposal:
    tokens: list[tuple[int, int]] = []
    for index in range(draw(st.integers(1, 16))):
        parent = draw(st.integers(LAST_TOKEN, index - 1))
        taken = {id for of, id in tokens if of == parent}
        free = [id for id in _IDS if id not in taken]
        if free:
            tokens.append((parent, draw(st.sampled_from(free))))
        else:
            break
    parents, ids = zip(*tokens, strict=True)
    return Proposal([Guess(id, 0.5, 0.5) for id in ids], parents, "eagle3")


def test_a_tree_that_contains_a_chain_accepts_no_less(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Along whichever path of the tree the chain goes, and whatever the target samples."""

    def accepted(proposal: Proposal, sampled: list[int]) -> int:
        _tokens, path, *_ = verdict_on(rig, monkeypatch, proposal, sampled)
        return len(path)

    @given(trees(), st.lists(st.sampled_from(_IDS), min_size=17, max_size=17), st.integers(0, 15))
    def holds(tree: Proposal, sampled: list[int], end: int) -> None:
        path = tree.path(end % len(tree))
        chain = Proposal.chain([Guess(tree.ids[i], 0.5, 0.5) for i in path], "eagle3")
        assert accepted(chain, sampled) == common_prefix(chain.ids, sampled)
        assert accepted(tree, sampled) >= accepted(chain, sampled)

    holds()


@pytest.mark.real
@pytest.mark.slow
def test_trees_leave_plain_decoding_only_where_two_tokens_nearly_tie(
    real_models: tuple[Model, Model],
) -> None:
    """A decode of a tree adds numbers up in another order than a decode of one token."""
    with open_rig(*real_models, shape="tree", n_ctx=1024) as rig:
        accepted = 0
        for prompt in builtin_prompts()[:2]:
            ids = rig.prompt(prompt.text)
            live = Live(Speculation(n_draft_max=8, shape="tree"), 0.0)
            tree = rig.reply(ids, live=live, max_tokens=64)
            plain = rig.reply(ids, live=plainly(), max_tokens=64, top=5)
            accepted += sum(round_.n_accepted for round_ in tree.rounds)
            same = common_prefix(plain.tokens, tree.tokens)
            if same == min(len(plain.tokens), len(tree.tokens)):
                continue
            first, *others = plain.rounds[same].likely[0]
            taken = next(other for other in others if other.id == tree.tokens[same])
            gap = log(first.probability / taken.probability)
            assert gap < _NEARLY, f"{prompt.name}: {first.text!r}, {taken.text!r} at token {same}"
        assert accepted > 10


_NEARLY = 0.5
"""The largest difference of two logits that rounding can turn around: the activations of a Q4_1
target have 8 bits."""

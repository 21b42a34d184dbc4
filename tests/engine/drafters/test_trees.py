"""Which tokens of a tree are accepted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.engine.drafters.proposal import Guess, Proposal
from eaglechat.engine.llama.objects import Context, Model
from eaglechat.engine.llama.sampler import Sampler
from eaglechat.engine.reply import ReplyState
from eaglechat.wire.records import LAST_TOKEN, Origin
from tests import tiny
from tests.engine.rig import GREEDY

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


@given(trees(), st.lists(st.sampled_from([*_IDS, tiny.EOS]), min_size=17, max_size=17))
def test_a_tree_is_walked_along_what_the_target_samples(
    tiny_models: tuple[Model, Model], tree: Proposal, sampled: list[int]
) -> None:
    """As far as a path of it goes, in the rows of its tokens: so it accepts no less than any chain
    that it contains. The end of a reply is no token of a draft."""
    paths = [tree.path(index) for index in range(len(tree))]
    along = [path for path in paths if [tree.ids[at] for at in path] == sampled[: len(path)]]
    longest = max(along, key=len, default=[])
    rows: list[int] = []

    def sample(_self: Sampler, _context: Context, row: int, _place: int, _drawn: object) -> int:
        rows.append(row)
        return sampled[len(rows) - 1]

    target = cast(Context, SimpleNamespace(model=tiny_models[0], n_ctx=256))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sampler, "sample", sample)
        reply = ReplyState(target, [1, 2], GREEDY, seed=1, max_tokens=None, stop=())
        tokens, path, n_tested, _likely = reply.verify(tree, context_left=100)
    n_more = len(tree.children(longest[-1] if longest else LAST_TOKEN)) > 0
    assert (path, n_tested) == (longest, len(longest) + n_more)
    assert [token.id for token in tokens] == sampled[: len(longest) + 1]
    assert rows == [0, *(index + 1 for index in longest)]
    last = Origin.CORRECTION if n_more else Origin.BONUS
    assert [token.origin for token in tokens] == [*[Origin.ACCEPTED] * len(longest), last]
    assert [token.drafter for token in tokens] == [*["eagle3"] * len(longest), None]

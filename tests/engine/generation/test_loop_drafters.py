"""What the loop promises whoever drafts: the target's own words, and a reply whatever fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eaglechat.engine.drafters.proposal import Guess, Proposal
from eaglechat.engine.llama.objects import Context, Model
from eaglechat.engine.llama.sampler import Sampler
from eaglechat.engine.loop import Live
from eaglechat.engine.reply import ReplyState
from eaglechat.wire.protocol import AUTO, Sampling, Set, Speculation
from eaglechat.wire.records import LAST_TOKEN, FinishReason, Origin, Token
from tests import tiny
from tests.engine.rig import (
    GREEDY,
    Reply,
    Rig,
    check_bookkeeping,
    drafts_of,
    open_rig,
    plainly,
)

HOT = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)
PENALISED = Sampling(temperature=0.0, repeat_penalty=1.2)


@pytest.fixture(params=["eagle3", "n-grams first", "tree"])
def rig(request: pytest.FixtureRequest, tiny_models: tuple[Model, Model]) -> Iterator[Rig]:
    shape = "tree" if request.param == "tree" else "chain"
    ngram = request.param == "n-grams first"
    with open_rig(*tiny_models, ngram=ngram, shape=shape) as rig:
        yield rig


@pytest.fixture
def prompt(rig: Rig) -> tuple[int, ...]:
    return rig.prompt("the cat sat on the mat and the cat sat on the hat")


# --- exactness ---


def test_what_is_accepted_names_its_drafter(tiny_models: tuple[Model, Model]) -> None:
    with open_rig(*tiny_models, ngram=True) as rig:
        reply = rig.reply(rig.prompt("the cat sat on the mat and the cat"), max_tokens=200)
    names = {token.drafter for round_ in reply.rounds for token in round_.tokens}
    assert names == {"eagle3", "ngram", None}
    assert {t.drafter for r in reply.rounds for t in r.drafted} == {"eagle3", "ngram"}


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 7])
def test_a_reply_is_exactly_as_long_as_allowed(
    rig: Rig, prompt: tuple[int, ...], max_tokens: int
) -> None:
    reply = rig.reply(prompt, n_draft_max=16, max_tokens=max_tokens)

    assert len(reply.tokens) == reply.end.tokens == max_tokens
    assert reply.end.finish_reason is FinishReason.LENGTH
    check_bookkeeping(reply, prompt)


def test_a_draft_that_is_shorter_than_n_min_is_not_verified(
    rig: Rig, prompt: tuple[int, ...]
) -> None:
    live = Live(Speculation(n_draft_max=4, n_min=4, p_min=0.3), 0.0)
    reply = rig.reply(prompt, live=live, max_tokens=200)
    assert {len(draft) for draft in drafts_of(reply)[:-4]} == {0, 4}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sampling", [GREEDY, PENALISED, HOT], ids=["greedy", "penalty", "hot"])
def test_whatever_is_turned_in_every_round_the_tokens_are_those_of_plain_decoding(
    tiny_models: tuple[Model, Model], sampling: Sampling, seed: int
) -> None:
    """Until the context is exactly full."""
    turns = random.Random(seed)
    with open_rig(*tiny_models, n_ctx=256, draft_window=16, ngram=True) as rig:
        prompt = rig.prompt("the cat sat on the mat and the cat sat on the hat")
        live = Live(Speculation(n_draft_max=16, shape="tree", ngram=True), sampling.temperature)
        events = []
        for event in rig.stream(prompt, live=live, sampling=sampling, seed=seed, max_tokens=None):
            events.append(event)
            shape = turns.choice(("chain", "tree", "auto"))
            n = turns.choice((0, 1, 3, 16, 16, AUTO))
            ngram, enabled = turns.random() < 0.5, turns.random() < 0.9
            live.apply(Set(n_draft_max=n, shape=shape, ngram=ngram, enabled=enabled))
        reply = Reply(tuple(events))
        plain = rig.reply(
            prompt, live=plainly(sampling.temperature), sampling=sampling, seed=seed,
            max_tokens=None,
        )  # fmt: skip
        assert (reply.tokens, reply.text) == (plain.tokens, plain.text)
        assert reply.end.finish_reason is plain.end.finish_reason
        assert {token.origin for r in plain.rounds for token in r.tokens} == {Origin.PLAIN}
        check_bookkeeping(reply, prompt)
    assert any(round_.is_tree for round_ in reply.rounds)
    # A target that draws may end its reply before.
    if sampling is not HOT:
        assert plain.end.finish_reason is FinishReason.CONTEXT
        assert {round_.drafter for round_ in reply.rounds} == {"eagle3", "ngram", None}


# --- an n-gram drafter alone ---


@pytest.mark.parametrize("write", [tiny.write_target, tiny.write_hybrid_target])
def test_a_target_without_a_draft_model_speculates_from_its_own_words(
    tmp_path: Path, tiny_models: tuple[Model, Model], write: Callable[[Path], Path]
) -> None:
    with (
        Model(write(tmp_path / "target.gguf")) as model,
        open_rig(model, tiny_models[1], make_drafter=None, ngram=True) as rig,
    ):
        prompt = rig.prompt("the cat sat on the mat")
        reply = rig.reply(prompt, n_draft_max=16, max_tokens=120)
        plain = rig.reply(prompt, live=plainly(), max_tokens=120)
    assert (reply.tokens, reply.offs) == (plain.tokens, [])
    check_bookkeeping(reply, prompt)
    # A greedy reply of the tiny target repeats itself before long.
    assert len(reply.rounds) < 0.6 * len(plain.rounds)


# --- trees ---


def verdict_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, proposal: Proposal, sampled: list[int]
) -> tuple[list[Token], list[int], int, list[int]]:
    """Tokens, path and number of tests of a proposal if the target samples these tokens, and the
    rows that it samples from."""
    rows: list[int] = []
    left = iter(sampled)

    def sample(_self: Sampler, _context: Context, row: int, _place: int) -> int:
        rows.append(row)
        return next(left)

    monkeypatch.setattr(Sampler, "sample", sample)
    reply = ReplyState(rig.target, [1, 2], GREEDY, seed=1, max_tokens=None, stop=())
    tokens, path, n_tested, _likely = reply.verify(proposal, context_left=100)
    assert reply.id_last == sampled[len(rows) - 1]
    return tokens, path, n_tested, rows


TREE = Proposal(
    [Guess(id, 0.5, 0.5) for id in (10, 11, 12, 12, 13, 14)],
    [LAST_TOKEN, LAST_TOKEN, 0, 1, 1, 4],
    "eagle3",
)


@pytest.mark.parametrize(
    ("sampled", "path", "n_tested", "origins"),
    [
        ([9], [], 1, "correction"),
        ([12], [], 1, "correction"),
        ([10, 13], [0], 2, "accepted correction"),
        ([10, 12, 5], [0, 2], 2, "accepted accepted bonus"),
        ([11, 13, 14, 5], [1, 4, 5], 3, "accepted accepted accepted bonus"),
        ([11, 12, 14], [1, 3], 2, "accepted accepted bonus"),
        ([11, tiny.EOS], [1], 2, "accepted correction"),
    ],
)
def test_a_tree_is_walked_along_what_the_target_samples(
    rig: Rig,
    monkeypatch: pytest.MonkeyPatch,
    *,
    sampled: list[int],
    path: list[int],
    n_tested: int,
    origins: str,
) -> None:
    tokens, found, n_asked, rows = verdict_on(rig, monkeypatch, TREE, sampled)

    assert [token.id for token in tokens] == sampled
    assert (found, n_asked) == (path, n_tested)
    assert rows == [0, *(index + 1 for index in path)]
    assert " ".join(token.origin.value for token in tokens) == origins
    assert [token.drafter for token in tokens] == [*["eagle3"] * len(path), None]


def test_a_chain_is_a_tree_without_siblings(rig: Rig, prompt: tuple[int, ...]) -> None:
    chain = Proposal.chain([Guess(id, 0.5, 0.5) for id in (5, 6, 7)], "eagle3")
    assert [chain.children(parent) for parent in (LAST_TOKEN, 0, 1, 2)] == [[0], [1], [2], []]
    assert chain.is_chain
    rounds = rig.reply(prompt).rounds
    assert any(round_.is_tree for round_ in rounds) is (rig.shape == "tree")

"""Drafting with MTP heads, on tiny models whose acceptance is known by construction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from eaglechat.engine.drafters.base import Limits
from eaglechat.engine.drafters.mtp import drafter
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Batch
from eaglechat.wire.errors import ProcessError
from eaglechat.wire.protocol import Sampling
from eaglechat.wire.records import FinishReason
from tests.engine.drafters.mtp_pairs import (
    DENSE,
    HYBRIDS,
    KINDS,
    RANDOM,
    WITH_CELLS,
    Files,
    Pair,
    cycle,
    likelihoods,
    opened,
    plain,
    write,
)
from tests.engine.rig import Reply, decode, drafts_of
from tests.tiny_kinds import accepted, wrong_tokens

HOT = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)

all_kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module", autouse=True)
def _backend() -> None:
    backend.start_backend(backend.LOG_ERRORS)


Write = Callable[..., Files]


@pytest.fixture
def files(tmp_path: Path) -> Write:
    return lambda kind, **options: write(kind, tmp_path, **options)


# --- what is drafted ---


@all_kinds
@pytest.mark.parametrize("token_weight", [0.0, 1.0], ids=["by state", "by token"])
@pytest.mark.parametrize("wrong", [0.0, 0.25])
def test_a_round_accepts_what_the_weights_say(
    files: Write, kind: str, wrong: float, token_weight: float
) -> None:
    written = files(kind, wrong=wrong, token_weight=token_weight)
    prompt = cycle(20)
    with opened(written) as pair:
        reply = pair.reply(prompt, length=60)

    assert reply.offs == []
    assert reply.tokens == cycle(80)[20:]
    id_last = prompt[-1]
    for round_ in reply.rounds:
        n = len(round_.drafted)
        assert round_.n_accepted == accepted(id_last, n, wrong_tokens(wrong))
        assert {token.drafter for token in round_.drafted} <= {"mtp"}
        id_last = round_.tokens[-1].id
    assert max(len(round_.drafted) for round_ in reply.rounds) == KINDS[kind].longest
    assert all(0 < p <= 1 for of_round in likelihoods(reply) for p in of_round)


# test_kinds has such a conversation with all of them.
@pytest.mark.parametrize("kind", ["hy_v3, 2 heads", "qwen35", "gemma4"])
def test_three_turns_with_a_cancel_and_an_edit_are_what_plain_decoding_writes(
    files: Write, kind: str
) -> None:
    """And each is drafted as by contexts that have seen nothing else."""
    written = files(kind, mixed=True)
    with opened(written) as pair:
        prompts = [RANDOM[:30]]
        replies = [pair.reply(prompts[0], n=7, rounds=12)]
        assert replies[0].end.finish_reason is FinishReason.CANCELLED
        prompts.append([*prompts[0], *replies[0].tokens, *RANDOM[40:60]])
        replies.append(pair.reply(prompts[1], n=7, boundaries=lambda: [35]))
        # An edit, 30 tokens back: a hybrid goes back to the boundary.
        held = [*prompts[1], *replies[1].tokens]
        prompts.append([*held[:-30], *RANDOM[100:120]])
        replies.append(pair.reply(prompts[2], n=7))

    drafted = sum(len(draft) for reply in replies for draft in drafts_of(reply))
    n_accepted = sum(round_.n_accepted for reply in replies for round_ in reply.rounds)
    assert 0.1 * drafted < n_accepted < 0.9 * drafted
    for prompt, reply, length in zip(prompts, replies, (None, 40, 40), strict=True):
        assert reply.offs == []
        wanted = plain(written, prompt, length=length or len(reply.tokens))
        assert reply.tokens == wanted.tokens
        check_as_fresh(written, prompt, reply, n=7, rounds=None if length else 12)


def check_as_fresh(files: Files, prompt: Sequence[int], reply: Reply, **options: Any) -> None:
    """A reply is drafted as by contexts that have seen nothing else."""
    with opened(files) as pair:
        again = pair.reply(prompt, **options)
    assert drafts_of(again) == drafts_of(reply)
    for one, other in zip(likelihoods(again), likelihoods(reply), strict=True):
        assert one == pytest.approx(other, abs=0.02)


@all_kinds
@pytest.mark.parametrize("merged", [True, False])
def test_a_draft_behind_rejected_tokens_is_one_from_fresh_contexts(
    files: Write, kind: str, monkeypatch: pytest.MonkeyPatch, *, merged: bool
) -> None:
    """Also where the architecture does not let rows with output and without be in one batch."""
    if not merged:
        monkeypatch.setattr(drafter, "STATES_OF_ALL_ROWS", ())
    written = files(kind, mixed=True)
    n_max = min(7, KINDS[kind].longest)
    text: list[int] = []
    with opened(written) as pair, Batch(pair.target) as batch:
        driver = pair.driver(batch, n_max)
        driver.prefill(RANDOM[:20])
        text += RANDOM[:19]
        for _ in range(12):
            before = driver.id_last
            drafted, n_accepted = driver.round()
            text += [before, *drafted[:n_accepted]]
        found = driver.propose()
        text.append(driver.id_last)
    with opened(written) as pair, Batch(pair.target) as batch:
        driver = pair.driver(batch, n_max)
        driver.prefill(text, chunk=64)
        fresh = driver.propose()

    assert found.ids == fresh.ids
    assert found.probabilities == pytest.approx(fresh.probabilities, abs=0.02)


@all_kinds
def test_it_drafts_behind_as_many_rows_as_a_batch_holds(files: Write, kind: str) -> None:
    with opened(files(kind), n_batch=32) as pair, Batch(pair.target) as batch:
        driver = pair.driver(batch, 3)
        driver.prefill(cycle(33), chunk=32)
        assert driver.propose().ids


@all_kinds
@pytest.mark.parametrize("take_in", [False, True])
def test_rows_that_wait_are_drafted_with_like_those_taken_in(
    files: Write, kind: str, *, take_in: bool
) -> None:
    """More rows than one batch of the heads holds may come before a draft."""
    with opened(files(kind, mixed=True), n_batch=32) as pair, Batch(pair.target) as batch:
        driver = pair.driver(batch, 3)
        driver.prefill(RANDOM[:100], take_in=take_in)
        assert (pair.drafter.waiting == 0) is take_in
        few = driver.propose()
    with opened(files(kind, mixed=True)) as pair, Batch(pair.target) as batch:
        driver = pair.driver(batch, 3)
        driver.prefill(RANDOM[:100], chunk=100)
        whole = driver.propose()

    assert few.ids == whole.ids
    assert few.probabilities == pytest.approx(whole.probabilities, abs=0.02)


@all_kinds
def test_a_draft_is_as_long_as_asked_and_as_likely(files: Write, kind: str) -> None:
    with opened(files(kind)) as pair, Batch(pair.target) as batch:
        driver = pair.driver(batch, 16)
        driver.prefill(cycle(20))
        longest = driver.propose()
        assert len(longest) == pair.drafter.longest
        driver.limits = Limits(2)
        assert driver.propose().ids == longest.ids[:2]
        driver.limits = Limits(16, p_min=1.0)
        assert driver.propose() == ()
        driver.limits = Limits(16, is_worth=lambda path, _: len(path) < 2)
        assert driver.propose().ids == longest.ids[:1]
        driver.limits = Limits(0)
        assert driver.propose() == ()
        driver.limits = Limits(16)
        assert driver.propose().ids == longest.ids


def test_nothing_is_drafted_before_the_first_position(files: Write) -> None:
    with opened(files("hy_v3")) as pair:
        assert pair.drafter.longest == 0
        assert pair.drafter.propose(0, 3, Limits(3)) == ()
        reply = pair.reply([3])
    assert reply.tokens == cycle(41, 3)[1:]


@pytest.mark.parametrize("seed", range(3))
@all_kinds
def test_at_temperature_0_8_the_tokens_are_the_very_ones_of_plain_sampling(
    files: Write, kind: str, seed: int
) -> None:
    written, prompt = files(kind, mixed=True), RANDOM[:30]
    with opened(written) as pair:
        reply = pair.reply(prompt, n=3, sampling=HOT, seed=seed)
    assert reply.tokens == plain(written, prompt, sampling=HOT, seed=seed).tokens
    assert sum(round_.n_accepted for round_ in reply.rounds) > 0


# --- between replies ---


@pytest.mark.parametrize("kind", HYBRIDS)
def test_a_hybrid_reads_only_what_is_new(files: Write, kind: str) -> None:
    written = files(kind, mixed=True)
    with opened(written) as pair:
        first = RANDOM[:30]
        reply = pair.reply(first)
        held = list(pair.generator.cached)
        longer = [*held, *RANDOM[40:60]]
        again = pair.reply(longer, boundaries=lambda: [len(held) + 10])
        assert again.prefills[0].reused == len(held)

        edited = [*longer[: len(held) + 15], *RANDOM[70:80]]
        third = pair.reply(edited)
        assert third.prefills[0].reused == len(held) + 10
        # Back to the end of the first prompt.
        fourth = pair.reply([*first[:-1], *RANDOM[80:90]])
        assert fourth.prefills[0].reused == len(first) - 1

    for prompt, given in ((first, reply), (longer, again), (edited, third)):
        assert plain(written, prompt).tokens == given.tokens
        check_as_fresh(written, prompt, given)


@pytest.mark.parametrize("kind", DENSE)
def test_a_prompt_that_was_taken_in_is_read_again_from_its_last_token_on(
    files: Write, kind: str
) -> None:
    """Of what the heads have taken in, the states are gone."""
    with opened(files(kind)) as pair:
        held = pair.reply(cycle(30)).tokens
        edited = [*cycle(30), *held[:5], *RANDOM[:9]]
        reply = pair.reply(edited)
        assert reply.prefills[0].reused == 34
        longer = [*pair.generator.cached, *RANDOM[:9]]
        assert pair.reply(longer).prefills[0].reused == len(longer) - 9


@pytest.mark.parametrize("kind", WITH_CELLS)
@pytest.mark.parametrize("n_taken", [0, 3, 5, 7, 10, 12, 20])
def test_positions_that_leave_the_cache_leave_the_heads(
    files: Write, kind: str, n_taken: int
) -> None:
    """Also if some of them wait. What is behind them keeps the state it came with."""
    written, text = files(kind, mixed=True), RANDOM[:20]
    with opened(written) as pair, Batch(pair.target) as batch:
        decode(pair.target, batch, text, 0, output=False)
        states = pair.target.states(20).copy()
        see(pair, batch, text[:n_taken], states, 0)
        pair.drafter.take_in()
        see(pair, batch, text[n_taken:], states, n_taken)
        pair.drafter.shift(5, 10)
        assert pair.drafter.known == 15
        shifted = pair.drafter.propose(15, 3, Limits(7))
        pair.drafter.shift(12, 20)
        assert pair.drafter.known == 11
    with opened(written) as pair, Batch(pair.target) as batch:
        before = states[4 if n_taken <= 5 else 9]
        states[4], states[5:15] = before, states[10:].copy()
        see(pair, batch, [*text[:5], *text[10:]], states, 0)
        fresh = pair.drafter.propose(15, 3, Limits(7))

    assert shifted.ids == fresh.ids
    assert shifted.probabilities == pytest.approx(fresh.probabilities, abs=0.01)


def test_an_assistant_waits_until_the_keys_it_reads_have_shifted(files: Write) -> None:
    """llama.cpp moves the target's keys in the target's next decode."""
    with opened(files("gemma4", mixed=True)) as pair, Batch(pair.target) as batch:
        drafter, text = pair.drafter, RANDOM[:20]
        decode(pair.target, batch, text, 0, output=False)
        drafter.see(batch)
        pair.target.shift(0, 5, 10)
        drafter.shift(5, 10)
        # The last position is decoded once more.
        assert drafter.known == 14
        assert drafter.resume([*text[:5], *text[10:]], to_draft=True) == 14
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


def see(pair: Pair, batch: Batch, tokens: Sequence[int], states: Any, first: int) -> None:
    """Let the drafter see tokens with these states, as if the target had just decoded them."""
    if tokens:
        batch.clear()
        batch.add_tokens(tokens, first, 0, output=False)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(pair.target, "states", lambda n: states[first : first + n])
            pair.drafter.see(batch)


def test_a_prompt_that_is_asked_for_again_costs_no_more(files: Write) -> None:
    """A reply may be cancelled before the position to be seen again was decoded."""
    with opened(files("hy_v3")) as pair, Batch(pair.target) as batch:
        decode(pair.target, batch, RANDOM[:20], 0, output=False)
        pair.drafter.see(batch)
        pair.drafter.take_in()
        for _ in range(3):
            assert pair.drafter.resume(RANDOM[:12], to_draft=True) == 11
        assert pair.drafter.resume(RANDOM[:5], to_draft=True) == 4
        assert pair.drafter.resume([], to_draft=True) == 0


# --- failing ---


def test_a_failing_head_ends_speculation_and_not_the_reply(
    files: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, prompt = files("hy_v3", mixed=True), RANDOM[:30]
    wanted = plain(written, prompt).tokens
    with opened(written) as pair:
        with monkeypatch.context() as patched:
            patched.setattr(pair.heads, "decode", lambda _batch: -3)
            failed = pair.reply(prompt, n=3)
        again = pair.reply(prompt, n=3)

    assert failed.tokens == again.tokens == wanted
    assert [off.reason for off in failed.offs] == [
        "the draft failed: the draft failed to decode (llama.cpp status -3)"
    ]
    assert not any(round_.drafted for round_ in failed.rounds)
    assert again.offs == []
    check_as_fresh(written, prompt, again, n=3)


def test_a_batch_that_does_not_follow_is_refused(files: Write) -> None:
    with opened(files("hy_v3")) as pair, Batch(pair.target) as batch:
        decode(pair.target, batch, RANDOM[:4], 0)
        pair.drafter.see(batch)
        with pytest.raises(ProcessError, match="saw 4 positions, drafting after position 5 needs"):
            pair.drafter.propose(5, 1, Limits(3))
        with pytest.raises(ProcessError, match="saw 4 positions, the batch goes on at 0"):
            pair.drafter.see(batch)
